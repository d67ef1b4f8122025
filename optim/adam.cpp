#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/adam.h>
#include <cleave/optim/internal/adam_update.h>

namespace cleave::optim {

namespace {

// In place: outputs are the parameter and its moments, which are read and written.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  cpu::adam(*c.out[0], *c.in[0], *c.out[1], *c.out[2], c.attributes.as<cpu::AdamStep>(),
            c.out.size() > 3 ? c.out[3] : nullptr);
}};

void check_adam_group(const Group<AdamOptions>& g) { detail::check_adam("adam", g.options); }
void check_adamw_group(const Group<AdamWOptions>& g) { detail::check_adam("adamw", g.options); }

const std::vector<std::string> moments{"exp_avg", "exp_avg_sq"};

}  // namespace

void detail::update_adam(const Tensor& value, const Tensor& gradient, const Tensor& m, const Tensor& v,
                         const cpu::AdamStep& step, const Tensor& rounded) {
  const View* in[] = {&cleave::detail::elements(gradient)};
  const View* out[] = {&cleave::detail::elements(value), &m.impl()->view, &v.impl()->view,
                       rounded.defined() ? &cleave::detail::elements(rounded) : nullptr};
  launch(kernel, value.device(), "adam", {in, {out, rounded.defined() ? size_t{4} : size_t{3}}, step});
}

Adam::Adam(const std::vector<nn::Parameter>& p, const AdamOptions& o) : Adam({{p, o, {}}}) {}
Adam::Adam(const std::vector<Tensor>& tensors, const AdamOptions& o) : Adam(parameters_of(tensors), o) {}
Adam::Adam(std::vector<Group<AdamOptions>> groups) : GroupedOptimizer(std::move(groups), check_adam_group) {}

void Adam::update(const Update& u) {
  const AdamOptions& o = options(u.index);
  detail::update_adam(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"),
                      detail::adam_step(o, lr_of(u.index), u.step, false), u.rounded);
}
std::vector<std::string> Adam::state_names() const { return moments; }

AdamW::AdamW(const std::vector<nn::Parameter>& p, const AdamWOptions& o) : AdamW({{p, o, {}}}) {}
AdamW::AdamW(const std::vector<Tensor>& tensors, const AdamWOptions& o) : AdamW(parameters_of(tensors), o) {}
AdamW::AdamW(std::vector<Group<AdamWOptions>> groups) : GroupedOptimizer(std::move(groups), check_adamw_group) {}

void AdamW::update(const Update& u) {
  const AdamWOptions& o = options(u.index);
  detail::update_adam(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"),
                      detail::adam_step(o, lr_of(u.index), u.step, true), u.rounded);
}
std::vector<std::string> AdamW::state_names() const { return moments; }

}  // namespace cleave::optim
