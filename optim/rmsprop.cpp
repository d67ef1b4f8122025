#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/rmsprop.h>

namespace cleave::optim {

namespace {

// In place: outputs are the parameter and its state, which are read and written.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  const auto& step = c.attributes.as<cpu::RmsPropStep>();
  cpu::rmsprop(*c.out[0], *c.in[0], *c.out[1], step.centered ? c.out[2] : nullptr,
               step.momentum != 0 ? c.out.back() : nullptr, step);
}};

void check_group(const Group<RMSPropOptions>& g) {
  const RMSPropOptions& o = g.options;
  detail::require_positive_or_zero("rmsprop", "lr", o.lr);
  detail::require_fraction("rmsprop", "alpha", o.alpha);
  detail::require_positive_or_zero("rmsprop", "eps", o.eps);
  detail::require_positive_or_zero("rmsprop", "weight_decay", o.weight_decay);
  detail::require_positive_or_zero("rmsprop", "momentum", o.momentum);
}

}  // namespace

RMSProp::RMSProp(const std::vector<nn::Parameter>& p, const RMSPropOptions& o) : RMSProp({{p, o, {}}}) {}
RMSProp::RMSProp(const std::vector<Tensor>& tensors, const RMSPropOptions& o) : RMSProp(parameters_of(tensors), o) {}
RMSProp::RMSProp(std::vector<Group<RMSPropOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void RMSProp::update(const Update& u) {
  const RMSPropOptions& o = options(u.index);
  std::vector<Tensor> state{state_block(u, "square_avg")};
  if (o.centered) state.push_back(state_block(u, "grad_avg"));
  if (o.momentum != 0) state.push_back(state_block(u, "momentum_buffer"));
  const View* in[] = {&cleave::detail::elements(u.gradient)};
  std::vector<const View*> out{&cleave::detail::elements(u.value)};
  for (const Tensor& s : state) out.push_back(&s.impl()->view);
  launch(kernel, u.value.device(), "rmsprop",
         {in, out, cpu::RmsPropStep{lr_of(u.index), o.alpha, o.eps, o.weight_decay, o.momentum, o.centered}});
}
std::vector<std::string> RMSProp::state_names() const { return {"square_avg", "grad_avg", "momentum_buffer"}; }

}  // namespace cleave::optim
