#include <cleave/autograd/engine.h>
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/dist/ambient.h>
#include <cleave/dist/communicator.h>
#include <cleave/nn/internal/first_order.h>
#include <cleave/nn/value_and_grad.h>
#include <cleave/ops/creation.h>

namespace cleave::nn::detail {

namespace {

thread_local int differentiated = 0;

void require_leaf(const Tensor& w, size_t i) {
  std::string which = "[value_and_grad] weight " + std::to_string(i);
  if (!w.defined()) throw ValueError(which + " is undefined; assign a tensor to it first");
  if (!is_floating(w.dtype()))
    throw GradError(which + ", " + to_string(w.type()) + ", is not floating; only floating tensors have gradients");
  if (w.has_producer())
    throw GradError(which + ", " + to_string(w.type()) +
                    ", was produced by an op on the tape; gradients are first order: pass w.detach()");
}

Tensor zero_gradient(const Tensor& w, const dist::LayoutData* target) {
  DType dtype = is_half(w.dtype()) ? DType::f32 : w.dtype();
  dist::UseMesh plain(nullptr);
  if (!w.is_distributed()) return zeros(w.shape(), {.dtype = dtype, .device = w.device()});
  const dist::LayoutData* layout = target ? target : autograd::gradient_layout(w.impl()->layout, 0);
  Device device = w.impl()->absent ? Device::Cpu : w.device();
  return zeros(w.shape(), {.dtype = dtype, .device = device, .layout = dist::Layout(layout)});
}

}  // namespace

DifferentiatedScope::DifferentiatedScope() { ++differentiated; }
DifferentiatedScope::~DifferentiatedScope() { --differentiated; }
bool inside_differentiated() { return differentiated > 0; }

struct GradCall::State {
  std::vector<Tensor> leaves;             // each once
  std::vector<size_t> leaf_of;            // by weight
  std::vector<bool> required, parameter;  // by leaf, before the call
  EnableGrad on;
  DifferentiatedScope inside;

  ~State() {
    for (size_t i = 0; i < required.size(); ++i) {
      autograd::meta(leaves[i]).requires_grad = required[i];
      leaves[i].impl()->parameter = parameter[i];
    }
  }
};

GradCall::GradCall(const std::vector<Tensor>& weights) {
  if (inside_differentiated())
    throw GradError(
        "[value_and_grad] called inside a function that is being differentiated; gradients are first order");
  for (size_t i = 0; i < weights.size(); ++i) require_leaf(weights[i], i);
  state_ = std::make_unique<State>();
  State& s = *state_;
  for (const Tensor& w : weights) {
    size_t at = 0;
    while (at < s.leaves.size() && s.leaves[at].impl() != w.impl()) ++at;
    if (at == s.leaves.size()) s.leaves.push_back(w);
    s.leaf_of.push_back(at);
  }
  for (const Tensor& leaf : s.leaves) {
    s.required.push_back(leaf.requires_grad());
    s.parameter.push_back(leaf.impl()->parameter);
    leaf.set_requires_grad(true);
  }
}

GradCall::~GradCall() = default;

namespace {

std::vector<autograd::Root> seeds(const std::vector<Tensor>& outputs, const ValueAndGradOptions& options) {
  if (outputs.empty()) throw ValueError("[value_and_grad] the function returned no tensor to differentiate");
  if (!options.sens.empty() && options.sens.size() != outputs.size())
    throw ValueError("[value_and_grad] there are " + std::to_string(options.sens.size()) + " sens for " +
                     std::to_string(outputs.size()) + " outputs; give one each, or none");
  std::vector<autograd::Root> roots;
  size_t seeded = options.sens.empty() ? 1 : outputs.size();
  for (size_t i = 0; i < seeded; ++i) {
    const Tensor& y = outputs[i];
    if (!y.defined()) throw ValueError("[value_and_grad] output " + std::to_string(i) + " is undefined");
    bool given = !options.sens.empty() && options.sens[i].tensor.defined();
    double number = options.sens.empty() ? 1.0 : options.sens[i].number;
    // A cotangent that does not fit is an error also where no weight is reached.
    autograd::Cotangent seed =
        given ? autograd::conform_cotangent(y, options.sens[i].tensor) : autograd::ones_cotangent(y, number);
    if (y.requires_grad()) roots.push_back({y, std::move(seed)});
  }
  return roots;
}

}  // namespace

std::vector<Tensor> GradCall::gradients(const std::vector<Tensor>& outputs, const ValueAndGradOptions& options) {
  dist::PhaseScope phase("backward");
  State& s = *state_;
  std::vector<autograd::Slots> captured(s.leaves.size());
  std::vector<autograd::Root> roots = seeds(outputs, options);
  autograd::GradientMerge merge;
  std::vector<size_t> order;  // of the leaves in `merge`
  auto target = [&](size_t i) { return autograd::meta(s.leaves[i]).gradient_layout; };
  auto add = [&](const Tensor& leaf) {
    size_t i = 0;
    while (i < s.leaves.size() && s.leaves[i].impl() != leaf.impl()) ++i;
    if (i == s.leaves.size() || captured[i].empty()) return;
    merge.add(leaf, captured[i], target(i));
    order.push_back(i);
  };
  autograd::EngineOptions engine{.wanted = s.leaves, .captured = &captured};
  bool at_once = autograd::overlapping();
  if (at_once || autograd::any_reduces_early())
    engine.completed = [&](const Tensor& leaf) {
      if (at_once || autograd::reduces_early(leaf)) add(leaf);
    };
  std::vector<Tensor> reached = autograd::run_backward(roots, engine);
  NoGrad off;
  for (const Tensor& leaf : reached) add(leaf);
  std::vector<Tensor> merged = merge.finish(), gradients(s.leaves.size()), out;
  for (size_t k = 0; k < order.size(); ++k) gradients[order[k]] = merged[k];
  for (size_t i : s.leaf_of)
    out.push_back(gradients[i].defined() ? gradients[i] : zero_gradient(s.leaves[i], target(i)));
  return out;
}

}  // namespace cleave::nn::detail
