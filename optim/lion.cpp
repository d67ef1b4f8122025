#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/lion.h>

namespace cleave::optim {

namespace {

// In place: outputs are the parameter and its state, which are read and written.
constexpr Kernel kernel{
    .cpu = [](const KernelCall& c) { cpu::lion(*c.out[0], *c.in[0], *c.out[1], c.attributes.as<cpu::LionStep>()); }};

void check_group(const Group<LionOptions>& g) {
  const LionOptions& o = g.options;
  detail::require_positive_or_zero("lion", "lr", o.lr);
  detail::require_fraction("lion", "beta1", o.beta1);
  detail::require_fraction("lion", "beta2", o.beta2);
  detail::require_positive_or_zero("lion", "weight_decay", o.weight_decay);
}

}  // namespace

Lion::Lion(const std::vector<nn::Parameter>& p, const LionOptions& o) : Lion({{p, o, {}}}) {}
Lion::Lion(const std::vector<Tensor>& tensors, const LionOptions& o) : Lion(parameters_of(tensors), o) {}
Lion::Lion(std::vector<Group<LionOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void Lion::update(const Update& u) {
  const LionOptions& o = options(u.index);
  Tensor m = state_block(u, "exp_avg");
  const View* in[] = {&cleave::detail::elements(u.gradient)};
  const View* out[] = {&cleave::detail::elements(u.value), &m.impl()->view};
  launch(kernel, u.value.device(), "lion", {in, out, cpu::LionStep{lr_of(u.index), o.beta1, o.beta2, o.weight_decay}});
}
std::vector<std::string> Lion::state_names() const { return {"exp_avg"}; }

}  // namespace cleave::optim
