#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/ops/inplace.h>
#include <cleave/optim/internal/adam_update.h>
#include <cleave/optim/internal/global_sums.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/lamb.h>

#include <cmath>

namespace cleave::optim {

namespace {

void check_group(const Group<LAMBOptions>& g) {
  const LAMBOptions& o = g.options;
  detail::require_positive_or_zero("lamb", "lr", o.lr);
  detail::require_fraction("lamb", "beta1", o.beta1);
  detail::require_fraction("lamb", "beta2", o.beta2);
  detail::require_positive_or_zero("lamb", "eps", o.eps);
  detail::require_positive_or_zero("lamb", "weight_decay", o.weight_decay);
}

// In place: the moments are read and written; the first output is the direction.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  cpu::adam_direction(*c.in[0], *c.in[1], *c.out[1], *c.out[2], *c.out[0], c.attributes.as<cpu::AdamStep>());
}};

// The step before it is scaled; the moments move on.
Tensor direction(const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v, const LAMBOptions& o, int64_t t) {
  cpu::AdamStep step = detail::adam_step(o, 0, t, false);
  if (!o.bias_correction) step.correction1 = step.correction2 = 1;
  Tensor r = cleave::detail::make_tensor(w.shape(), w.dtype(), w.device());
  const View* in[] = {&cleave::detail::elements(w), &cleave::detail::elements(g)};
  const View* out[] = {&r.impl()->view, &cleave::detail::elements(m), &cleave::detail::elements(v)};
  launch(kernel, w.device(), "lamb", {in, out, step});
  return r;
}

}  // namespace

LAMB::LAMB(const std::vector<nn::Parameter>& p, const LAMBOptions& o) : LAMB({{p, o, {}}}) {}
LAMB::LAMB(const std::vector<Tensor>& tensors, const LAMBOptions& o) : LAMB(parameters_of(tensors), o) {}
LAMB::LAMB(std::vector<Group<LAMBOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void LAMB::update(const Update& u) { update_all({&u, 1}); }

void LAMB::update_all(std::span<const Update> updates) {
  struct Step {
    Tensor r, weight, length;  // sums of squares
  };
  std::vector<Step> steps;
  detail::GlobalSums sums;
  for (const Update& u : updates) {
    Tensor r = direction(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"), options(u.index),
                         u.step);
    steps.push_back(
        {r, sums.add(cpu::Reduce::sum_square, u.value, u.layout), sums.add(cpu::Reduce::sum_square, r, u.layout)});
  }
  sums.finish("lamb");
  for (size_t i = 0; i < updates.size(); ++i) {
    double w = detail::GlobalSums::value(steps[i].weight), r = detail::GlobalSums::value(steps[i].length);
    double trust = w != 0 && r != 0 ? std::sqrt(w) / std::sqrt(r) : 1;
    add_(updates[i].value, steps[i].r, -lr_of(updates[i].index) * trust);
  }
}

std::vector<std::string> LAMB::state_names() const { return {"exp_avg", "exp_avg_sq"}; }

}  // namespace cleave::optim
