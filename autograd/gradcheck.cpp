#include <cleave/autograd/engine.h>
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/gradcheck.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>

#include <cmath>

namespace cleave {
namespace {

// Fixed numbers in (-1, 1) without a pattern: a weight of its own for every output element.
double weight(int64_t i) { return std::sin(1.0 + 1.7 * static_cast<double>(i)) * 0.9; }

double weighted_sum(const Tensor& y) {
  Tensor host = detail::dense_copy(dist::full_tensor(y).detach(), DType::f64);
  const double* v = host.data<double>();
  double total = 0;
  for (int64_t i = 0; i < numel(host); ++i) total += weight(i) * v[i];
  return total;
}

Tensor weights_like(const Tensor& y) {
  Tensor c = detail::make_tensor(y.shape(), DType::f64, Device::Cpu);
  for (int64_t i = 0; i < numel(c); ++i) c.data<double>()[i] = weight(i);
  Tensor typed = y.dtype() == DType::f64 ? c : detail::dense_copy(c, y.dtype());
  return y.is_distributed() ? dist::replicate(typed, y.layout().mesh()) : typed;
}

}  // namespace

bool gradcheck(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x, const GradcheckOptions& options) {
  if (x.dtype() != DType::f64) throw DTypeError("[gradcheck] x is " + to_string(x.type()) + " and must be f64");
  Tensor probe = detail::dense_copy(x.detach(), DType::f64);
  probe.set_requires_grad();
  Tensor y = fn(probe);
  if (!y.requires_grad()) throw GradError("[gradcheck] the result does not depend on x on the tape");
  autograd::Root root{y, autograd::conform_cotangent(y, weights_like(y))};
  std::vector<autograd::Slots> captured(1);
  autograd::run_backward({&root, 1}, {.wanted = {&probe, 1}, .captured = &captured});
  Tensor gradient;
  if (!captured[0].empty()) gradient = detail::dense_copy(captured[0].merge(nullptr, 0, "gradcheck").value, DType::f64);
  NoGrad off;
  double* v = probe.data<double>();
  for (int64_t i = 0; i < numel(probe); ++i) {
    double kept = v[i], h = options.step * std::max(1.0, std::abs(kept));
    v[i] = kept + h;
    double up = weighted_sum(fn(probe));
    v[i] = kept - h;
    double down = weighted_sum(fn(probe));
    v[i] = kept;
    double expected = (up - down) / (2 * h), got = gradient.defined() ? gradient.data<double>()[i] : 0.0;
    if (!(std::abs(got - expected) <= options.atol + options.rtol * std::abs(expected)))
      throw GradError("[gradcheck] element " + std::to_string(i) + " of the gradient is " + std::to_string(got) +
                      " but finite differences give " + std::to_string(expected));
  }
  return true;
}

}  // namespace cleave
