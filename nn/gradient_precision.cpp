#include <cleave/nn/gradient_precision.h>
#include <cleave/nn/parameter.h>

namespace cleave::nn {

void set_gradient_precision(const ModuleBase& model, GradientPrecision precision) {
  for (const Parameter& p : model.parameters()) autograd::set_gradient_precision(p.tensor(), precision);
}

}  // namespace cleave::nn
