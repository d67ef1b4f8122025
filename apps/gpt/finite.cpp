#include "gpt/finite.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/nn/parameter.h>
#include <cleave/ops/host.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

#include <fmt/format.h>

namespace gpt {

using cleave::Tensor;

namespace {

bool finite(const Tensor& x) {
  if (!x.defined() || !cleave::is_floating(x.dtype())) return true;
  return cleave::item<int64_t>(cleave::all(cleave::isfinite(x))) != 0;
}

}  // namespace

FirstNotFinite::FirstNotFinite()
    : observer_([this](const cleave::nn::ModuleBase& module, std::span<const Tensor> outputs) {
        if (!found_.empty()) return;
        for (const Tensor& x : outputs)
          if (!finite(x))
            found_ = fmt::format("{} ({})", module.path().empty() ? "the model" : module.path(), to_string(x.type()));
      }) {}

std::string FirstNotFinite::text() const {
  if (found_.empty()) return "all modules' outputs are finite, but their logits are too large for it";
  return "the first module whose output is not finite is " + found_;
}

std::string first_gradient_not_finite(const cleave::nn::ModuleBase& model) {
  cleave::NoGrad off;
  for (const auto& [name, parameter] : model.named_parameters())
    if (!finite(parameter.grad())) return "the first parameter whose gradient is not finite is " + name;
  return "every gradient is finite, but their sum of squares is too large";
}

}  // namespace gpt
