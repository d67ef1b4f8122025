#include <cleave/core/cpu/loops/make_functions.h>
#include <cleave/core/math/unary.h>

namespace cleave::cpu::CLEAVE_ISA {

constinit const FunctionLoops unary_loops = make_functions<Pointwise::neg, Pointwise::ge_scalar>();

}  // namespace cleave::cpu::CLEAVE_ISA
