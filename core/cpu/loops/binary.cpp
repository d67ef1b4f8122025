#include <cleave/core/cpu/loops/make_functions.h>
#include <cleave/core/math/binary.h>

namespace cleave::cpu::CLEAVE_ISA {

constinit const FunctionLoops binary_loops = make_functions<Pointwise::add, Pointwise::logical_xor>();

}  // namespace cleave::cpu::CLEAVE_ISA
