// custom_shard: what one call does, and its node.
#include <cleave/autograd/engine.h>
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/custom_shard.h>
#include <cleave/nn/internal/agree.h>
#include <cleave/nn/internal/first_order.h>

#include <unordered_set>

namespace cleave::nn::detail {

namespace {

using autograd::Cotangent;
using dist::AxisMask;

/// The call on the outer tape. Its backward runs the inner tape, from the results to the blocks.
class CustomNode : public autograd::Node {
 public:
  explicit CustomNode(const CustomPlan& plan) : Node("custom_shard", autograd::Producer::replaced), grad_(plan.grad) {}

  std::vector<Tensor> blocks, results;
  std::vector<const dist::LayoutData*> layouts;  // of the inputs

  std::vector<Cotangent> backward(std::span<const Cotangent> given) override {
    if (results.empty())
      throw GradError(
          "[custom_shard] backward ran through this call already and let go of its tape; pass "
          "{.retain_graph = true} to the first call");
    std::vector<autograd::OutputState> live;
    std::vector<autograd::Root> roots = seed(given, live);
    std::vector<Tensor> wanted;
    for (const Tensor& b : blocks)
      if (b.requires_grad()) wanted.push_back(b);
    std::vector<autograd::Slots> captured(wanted.size());
    autograd::run_backward(roots, {.retain_graph = true, .wanted = wanted, .captured = &captured});
    std::vector<Cotangent> out(blocks.size());
    size_t next = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!blocks[i].requires_grad()) continue;
      out[i].value = block_gradient(blocks[i], captured[next++]);
      out[i].partial =
          grad_.empty() ? autograd::input_mask(layouts[i], live) : grad_[i] & autograd::replicated_axes(layouts[i]);
    }
    return out;
  }

  void release_saved() override {
    blocks.clear();
    results.clear();
  }

 private:
  std::vector<autograd::Root> seed(std::span<const Cotangent> given, std::vector<autograd::OutputState>& live) const {
    std::vector<Cotangent> cotangents(given.begin(), given.end());
    for (size_t i = 0; i < cotangents.size(); ++i)
      if (cotangents[i].value.defined()) live.push_back({outputs[i].layout, cotangents[i].partial});
    // Rule B1; a function that declares its gradients gets its cotangents whole.
    AxisMask promoted = grad_.empty() ? autograd::promoted_axes(live) : 0;
    live.clear();
    std::vector<autograd::Root> roots;
    for (size_t i = 0; i < cotangents.size(); ++i) {
      if (!cotangents[i].value.defined()) continue;
      AxisMask axes = promoted & autograd::replicated_axes(outputs[i].layout) & ~cotangents[i].partial;
      autograd::keep_on_first(cotangents[i], outputs[i].layout, axes);
      live.push_back({outputs[i].layout, cotangents[i].partial});
      if (results[i].requires_grad()) roots.push_back({results[i], {cotangents[i].value, 0}});
    }
    return roots;
  }

  // Zeros where nothing came back: whether it did may depend on the rank, and what follows communicates.
  static Tensor block_gradient(const Tensor& block, autograd::Slots& slots) {
    if (slots.empty()) {
      Tensor zero = cleave::detail::make_tensor(block.shape(), block.dtype(), block.device());
      cleave::detail::fill_view(zero.device(), zero.impl()->view, 0.0);
      return zero;
    }
    Tensor sum = slots.sum(nullptr).value;
    return sum.dtype() == block.dtype() ? sum : cleave::detail::dense_copy(sum, block.dtype());
  }

  std::vector<AxisMask> grad_;
};

// Gradients reach the blocks only: anything else on the inner tape would lose its own.
void require_closed(const CustomNode& call) {
  std::vector<const autograd::Node*> pending;
  std::unordered_set<const autograd::Node*> seen;
  auto check_leaf = [&](const Tensor& leaf) {
    for (const Tensor& b : call.blocks)
      if (b.impl() == leaf.impl()) return;
    throw GradError("[custom_shard] the function uses " + to_string(leaf.type()) +
                    ", which requires grad and is not among its inputs; pass it as one");
  };
  auto follow = [&](const autograd::NodeRef& node) {
    if (node->sequence() < call.sequence())
      throw GradError("[custom_shard] the function uses a tensor that \"" + std::string(node->name()) +
                      "\" made on the tape outside, which is not among its inputs; pass it as one, or detach() it");
    if (seen.insert(node.get()).second) pending.push_back(node.get());
  };
  for (const Tensor& y : call.results) {
    if (!y.requires_grad()) continue;
    const auto& meta = *y.impl()->autograd;
    if (meta.producer)
      follow(meta.producer);
    else
      check_leaf(y);
  }
  while (!pending.empty()) {
    const autograd::Node* node = pending.back();
    pending.pop_back();
    for (const autograd::Edge& e : node->inputs) {
      if (e.node)
        follow(e.node);
      else if (e.leaf.defined())
        check_leaf(e.leaf);
    }
  }
}

AxisMask read_axes(dist::DeviceMesh mesh, const std::string& text) {
  if (text.find_first_not_of(" ") == std::string::npos) return 0;
  return mesh.layout("... partial(" + text + ")").data()->partial;
}

}  // namespace

CustomPlan read_custom(dist::DeviceMesh mesh, const CustomLayouts& layouts) {
  CustomPlan plan{read_layouts("custom_shard", mesh, {.in = layouts.in, .out = layouts.out}), {}};
  if (layouts.grad.empty()) return plan;
  if (layouts.grad.size() != layouts.in.size())
    throw LayoutError("[custom_shard] .grad has " + std::to_string(layouts.grad.size()) + " entries for " +
                      std::to_string(layouts.in.size()) + " inputs; give one each, \"\" for none");
  for (const std::string& text : layouts.grad) plan.grad.push_back(read_axes(mesh, text));
  return plan;
}

struct CustomCall::State {
  const CustomPlan& plan;
  std::vector<Tensor> inputs, blocks;
  autograd::NodeRef node;  // null: not recorded
  std::optional<dist::UseMesh> plain;
  std::optional<DifferentiatedScope> inside;

  CustomNode& call() { return static_cast<CustomNode&>(*node.get()); }
};

CustomCall::CustomCall(const CustomPlan& plan) : state_(new State{plan, {}, {}, {}, {}, {}}) {
  const dist::DeviceMesh& mesh = plan.layouts.mesh;
  if (!mesh.contains_self())
    throw LayoutError("[custom_shard] this rank is outside " + to_string(mesh) +
                      " and cannot run the function; call it on the members only");
}
CustomCall::~CustomCall() = default;

Tensor CustomCall::operator()(const Tensor& input) {
  State& s = *state_;
  size_t i = s.inputs.size();
  if (!input.defined() || i >= s.plan.layouts.in.size()) {
    s.inputs.push_back(input);
    s.blocks.push_back(input);
    return input;
  }
  Tensor x = place_tensor(input, s.plan.layouts.in[i]);
  Tensor block = x.local();
  if (grad_enabled() && x.requires_grad()) {
    block.set_requires_grad(true);
    block.impl()->parameter = false;
  }
  s.inputs.push_back(x);
  s.blocks.push_back(block);
  return block;
}

void CustomCall::begin() {
  State& s = *state_;
  require_count("custom_shard", "input", s.inputs.size(), s.plan.layouts.in.size());
  std::vector<const Tensor*> inputs;
  for (const Tensor& x : s.inputs) inputs.push_back(&x);
  if (autograd::should_record(inputs)) {
    // Made before the function runs: nodes of the inner tape have larger numbers.
    s.node = autograd::NodeRef(new CustomNode(s.plan));
    s.inside.emplace();
  }
  s.plain.emplace(nullptr);
}

std::vector<Tensor> CustomCall::finish(const std::vector<Tensor>& results) {
  State& s = *state_;
  s.plain.reset();
  s.inside.reset();
  require_count("custom_shard", "output", results.size(), s.plan.layouts.out.size());
  std::vector<Tensor> outputs = agree_on_outputs(results, s.plan.layouts.out);
  if (!s.node) {
    for (const Tensor& y : results)
      if (y.requires_grad())
        throw GradError(
            "[custom_shard] the function uses a tensor that requires grad and none of its inputs does; pass it as one");
    return outputs;
  }
  CustomNode& call = s.call();
  for (const Tensor& x : s.inputs) {
    call.add_input(x);
    call.layouts.push_back(x.defined() ? x.impl()->layout : nullptr);
  }
  call.blocks = s.blocks;
  call.results = results;
  require_closed(call);
  for (size_t i = 0; i < outputs.size(); ++i) call.add_output(outputs[i], results[i].requires_grad());
  return outputs;
}

}  // namespace cleave::nn::detail
