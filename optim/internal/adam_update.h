// Adam's update of one block, for the optimizers that contain it.
#pragma once
#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/tensor.h>
#include <cleave/optim/internal/options.h>

#include <cmath>

namespace cleave::optim::detail {

template <class Options>
cpu::AdamStep adam_step(const Options& o, double lr, int64_t t, bool decoupled) {
  auto n = static_cast<double>(t);
  return {lr, o.beta1, o.beta2, o.eps, o.weight_decay, 1 - std::pow(o.beta1, n), 1 - std::pow(o.beta2, n), decoupled};
}
/// Changes value, m and v in place; `rounded`, if defined, becomes value in its dtype.
void update_adam(const Tensor& value, const Tensor& gradient, const Tensor& m, const Tensor& v,
                 const cpu::AdamStep& step, const Tensor& rounded = {});

template <class Options>
void check_adam(const char* name, const Options& o) {
  require_positive_or_zero(name, "lr", o.lr);
  require_fraction(name, "beta1", o.beta1);
  require_fraction(name, "beta2", o.beta2);
  require_positive_or_zero(name, "eps", o.eps);
  require_positive_or_zero(name, "weight_decay", o.weight_decay);
}

}  // namespace cleave::optim::detail
