#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/optim/sgd.h>

namespace cleave::optim {

namespace {

using cpu::SgdStep;

// In place: outputs are the parameter and, with momentum, its buffer, which are read and written.
constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
  cpu::sgd(*c.out[0], *c.in[0], c.out.size() > 1 ? c.out[1] : nullptr, c.attributes.as<SgdStep>());
}};

void check_group(const Group<SGDOptions>& g) {
  const SGDOptions& o = g.options;
  if (!(o.lr >= 0)) throw ValueError("[sgd] lr is " + std::to_string(o.lr) + "; it must not be negative");
  if (!(o.momentum >= 0))
    throw ValueError("[sgd] momentum is " + std::to_string(o.momentum) + "; it must not be negative");
  if (!(o.weight_decay >= 0))
    throw ValueError("[sgd] weight_decay is " + std::to_string(o.weight_decay) + "; it must not be negative");
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    throw ValueError("[sgd] nesterov needs a momentum above 0 and no dampening; they are " +
                     std::to_string(o.momentum) + " and " + std::to_string(o.dampening));
}

}  // namespace

SGD::SGD(const std::vector<nn::Parameter>& p, const SGDOptions& o) : SGD({{p, o, {}}}) {}
SGD::SGD(const std::vector<Tensor>& tensors, const SGDOptions& o) : SGD(parameters_of(tensors), o) {}
SGD::SGD(std::vector<Group<SGDOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void SGD::update(const Update& u) {
  const SGDOptions& o = options(u.index);
  bool first = !has_state(u, "momentum_buffer");  // also where momentum was turned on later
  SgdStep step{lr_of(u.index), o.momentum, o.dampening, o.weight_decay, o.nesterov, first};
  const View* in[] = {&cleave::detail::elements(u.gradient)};
  Tensor buffer = o.momentum != 0 ? state_block(u, "momentum_buffer") : Tensor();
  const View* out[] = {&cleave::detail::elements(u.value), buffer.defined() ? &buffer.impl()->view : nullptr};
  launch(kernel, u.value.device(), "sgd", {in, {out, buffer.defined() ? size_t{2} : size_t{1}}, step});
}
std::vector<std::string> SGD::state_names() const { return {"momentum_buffer"}; }

}  // namespace cleave::optim
