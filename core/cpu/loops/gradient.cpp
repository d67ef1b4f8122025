#include <cleave/core/cpu/loops/make_functions.h>
#include <cleave/core/math/gradients.h>

namespace cleave::cpu::CLEAVE_ISA {

constinit const FunctionLoops gradient_loops = make_functions<Pointwise::relu_grad, Pointwise::pow_grad_b>();

}  // namespace cleave::cpu::CLEAVE_ISA
