#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/adagrad.h>
#include <cleave/optim/internal/options.h>

namespace cleave::optim {

namespace {

// In place: outputs are the parameter and its state, which are read and written.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  cpu::adagrad(*c.out[0], *c.in[0], *c.out[1], c.attributes.as<cpu::AdagradStep>());
}};

void check_group(const Group<AdagradOptions>& g) {
  const AdagradOptions& o = g.options;
  detail::require_positive_or_zero("adagrad", "lr", o.lr);
  detail::require_positive_or_zero("adagrad", "lr_decay", o.lr_decay);
  detail::require_positive_or_zero("adagrad", "weight_decay", o.weight_decay);
  detail::require_positive_or_zero("adagrad", "initial_accumulator", o.initial_accumulator);
  detail::require_positive_or_zero("adagrad", "eps", o.eps);
}

}  // namespace

Adagrad::Adagrad(const std::vector<nn::Parameter>& p, const AdagradOptions& o) : Adagrad({{p, o, {}}}) {}
Adagrad::Adagrad(const std::vector<Tensor>& tensors, const AdagradOptions& o) : Adagrad(parameters_of(tensors), o) {}
Adagrad::Adagrad(std::vector<Group<AdagradOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void Adagrad::update(const Update& u) {
  const AdagradOptions& o = options(u.index);
  double lr = lr_of(u.index) / (1 + static_cast<double>(u.step - 1) * o.lr_decay);
  Tensor sum = state_block(u, "sum", o.initial_accumulator);
  const View* in[] = {&cleave::detail::elements(u.gradient)};
  const View* out[] = {&cleave::detail::elements(u.value), &sum.impl()->view};
  launch(kernel, u.value.device(), "adagrad", {in, out, cpu::AdagradStep{lr, o.eps, o.weight_decay}});
}
std::vector<std::string> Adagrad::state_names() const { return {"sum"}; }

}  // namespace cleave::optim
