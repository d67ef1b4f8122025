// Gradients against finite differences.
#pragma once
#include <functional>

#include <cleave/core/tensor.h>

namespace cleave {

struct GradcheckOptions {
  double step = 1e-6;
  double rtol = 1e-5;
  double atol = 1e-7;
};
/// Compares the gradient of sum(c * fn(x)), c fixed pseudo-random numbers, at the plain f64 tensor x with central
/// differences in every element. True if all agree within atol + rtol * |difference|; x keeps its value and grad.
/// Throws GradError naming the first element that does not. x must be f64 (DTypeError).
bool gradcheck(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x, const GradcheckOptions& options = {});

}  // namespace cleave
