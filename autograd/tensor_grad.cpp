// The members of Tensor that speak of the tape.
#include <cleave/autograd/engine.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>

namespace cleave {
namespace {

const detail::AutogradMeta* find(const Tensor& x) { return x.impl() ? x.impl()->autograd : nullptr; }

void backward_from(const Tensor& y, autograd::Cotangent cotangent, const BackwardOptions& options) {
  autograd::Root root{y, std::move(cotangent)};
  autograd::LeafSync sync;
  autograd::EngineOptions engine{.retain_graph = options.retain_graph};
  bool at_once = autograd::overlapping();
  if (options.sync && (at_once || autograd::any_reduces_early()))
    engine.completed = [&](const Tensor& leaf) {
      if (at_once || autograd::reduces_early(leaf)) sync.add(leaf);
    };
  std::vector<Tensor> leaves = autograd::run_backward({&root, 1}, engine);
  if (!options.sync) return;
  dist::PhaseScope phase("backward");
  for (const Tensor& leaf : leaves) sync.add(leaf);
  sync.finish();
}

void require_tape(const Tensor& y) {
  if (!y.requires_grad())
    throw GradError("[backward] " + to_string(y.type()) +
                    " does not require grad: no tensor it was computed from has set_requires_grad(), or NoGrad was on");
}

}  // namespace

bool Tensor::requires_grad() const {
  const auto* m = find(*this);
  return m && m->requires_grad;
}

bool Tensor::has_producer() const {
  const auto* m = find(*this);
  return m && m->producer;
}

const Tensor& Tensor::set_requires_grad(bool on) const {
  if (has_producer())
    throw GradError("[set_requires_grad] " + to_string(type()) +
                    " was produced by an op on the tape; use detach() first");
  if (on && !is_floating(dtype()))
    throw GradError("[set_requires_grad] " + to_string(type()) +
                    " is not floating; only floating tensors have gradients");
  autograd::meta(*this).requires_grad = on;
  impl_->parameter = on;
  return *this;
}

Tensor Tensor::grad() const {
  const auto* m = find(*this);
  if (!m) return {};
  if (!m->slots.empty())
    throw GradError("[grad] the gradient of " + to_string(type()) +
                    " has terms that are not synced; call sync_gradients() first");
  return m->grad;
}

void Tensor::zero_grad() const {
  if (!impl_ || !impl_->autograd) return;
  impl_->autograd->grad = {};
  impl_->autograd->slots.clear();
}

void Tensor::backward(const BackwardOptions& options) const {
  require_tape(*this);
  if (dim() != 0 && cleave::numel(shape()) != 1)
    throw GradError("[backward] " + to_string(type()) + " is not a scalar; pass a cotangent of the same shape");
  backward_from(*this, autograd::ones_cotangent(*this), options);
}

void Tensor::backward(const Tensor& cotangent, const BackwardOptions& options) const {
  require_tape(*this);
  backward_from(*this, autograd::conform_cotangent(*this, cotangent), options);
}

void Tensor::add_hook(std::function<Tensor(const Tensor&)> hook) const {
  if (!requires_grad() || has_producer())
    throw GradError("[add_hook] " + to_string(type()) + " is not a leaf that requires grad");
  impl_->autograd->hooks.push_back(std::move(hook));
}

}  // namespace cleave
