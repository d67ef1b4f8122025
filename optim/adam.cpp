#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/adam.h>

#include <cmath>

namespace cleave::optim {

namespace {

using cpu::AdamStep;

// In place: outputs are the parameter and its moments, which are read and written.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  cpu::adam(*c.out[0], *c.in[0], *c.out[1], *c.out[2], c.attributes.as<AdamStep>());
}};

template <class Options>
AdamStep step_of(const Options& o, double lr, int64_t t, bool decoupled) {
  auto n = static_cast<double>(t);
  return {lr, o.beta1, o.beta2, o.eps, o.weight_decay, 1 - std::pow(o.beta1, n), 1 - std::pow(o.beta2, n), decoupled};
}

void run(const Tensor& value, const Tensor& gradient, const Tensor& m, const Tensor& v, const AdamStep& step) {
  const View* in[] = {&cleave::detail::elements(gradient)};
  const View* out[] = {&cleave::detail::elements(value), &m.impl()->view, &v.impl()->view};
  launch(kernel, value.device(), "adam", {in, out, step});
}

template <class Options>
std::vector<Group<Options>> checked(std::vector<Group<Options>> groups, const char* name) {
  for (const auto& g : groups) {
    const Options& o = g.options;
    auto fail = [&](const char* what, double value) {
      throw ValueError("[" + std::string(name) + "] " + what + " is " + std::to_string(value));
    };
    if (!(o.lr >= 0)) fail("lr must not be negative; it", o.lr);
    if (!(o.beta1 >= 0 && o.beta1 < 1)) fail("beta1 must be in [0, 1); it", o.beta1);
    if (!(o.beta2 >= 0 && o.beta2 < 1)) fail("beta2 must be in [0, 1); it", o.beta2);
    if (!(o.eps >= 0)) fail("eps must not be negative; it", o.eps);
    if (!(o.weight_decay >= 0)) fail("weight_decay must not be negative; it", o.weight_decay);
  }
  return groups;
}

const std::vector<std::string> moments{"exp_avg", "exp_avg_sq"};

}  // namespace

Adam::Adam(const std::vector<nn::Parameter>& p, const AdamOptions& o) : Adam({{p, o}}) {}
Adam::Adam(const std::vector<Tensor>& tensors, const AdamOptions& o) : Adam(parameters_of(tensors), o) {}
Adam::Adam(std::vector<Group<AdamOptions>> groups) : GroupedOptimizer(checked(std::move(groups), "adam")) {}

void Adam::update(const Update& u) {
  const AdamOptions& o = options(u.index);
  run(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"),
      step_of(o, o.lr * lr_factor(), u.step, false));
}
std::vector<std::string> Adam::state_names() const { return moments; }

AdamW::AdamW(const std::vector<nn::Parameter>& p, const AdamWOptions& o) : AdamW({{p, o}}) {}
AdamW::AdamW(const std::vector<Tensor>& tensors, const AdamWOptions& o) : AdamW(parameters_of(tensors), o) {}
AdamW::AdamW(std::vector<Group<AdamWOptions>> groups) : GroupedOptimizer(checked(std::move(groups), "adamw")) {}

void AdamW::update(const Update& u) {
  const AdamWOptions& o = options(u.index);
  run(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"),
      step_of(o, o.lr * lr_factor(), u.step, true));
}
std::vector<std::string> AdamW::state_names() const { return moments; }

}  // namespace cleave::optim
