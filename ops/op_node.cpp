#include <cleave/ops/autocast.h>
#include <cleave/ops/op_node.h>

#include <cstring>
#include <memory>

namespace cleave {

using autograd::Cotangent;
using autograd::OutputState;

namespace {

// Ops with more inputs than bits (cat) save none of them.
bool bit(uint32_t mask, size_t i) { return i < 32 && (mask >> i & 1); }

// A handle of its own to the same block: an output that kept itself would keep its node, which keeps it.
Tensor block_of(const Tensor& x) { return x.local(); }

}  // namespace

OpNode::OpNode(const OpDef& op, Attributes attributes, Inputs in, std::span<Tensor> out)
    : Node(op.name, autograd::Producer::local_several), op_(op), attributes_size_(attributes.size()) {
  if (attributes.size() > attributes_.size()) throw Error(op_message(op.name, "attributes are too large for the tape"));
  if (attributes.size()) std::memcpy(attributes_.data(), attributes.data(), attributes.size());
  inputs.reserve(in.size());
  outputs.reserve(out.size());
  types_.resize(in.size());
  saved_.resize(in.size() + out.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& x = *in[i];
    add_input(x);
    if (!x.defined()) continue;
    const detail::TensorImpl& impl = *x.impl();
    DType dtype = impl.view.dtype, summed = autograd::summed_dtype(inputs[i], dtype);
    types_[i] = {impl.view.shape, impl.global, dtype, summed, impl.layout};
    if (bit(op.saves.inputs, i)) save_input(i, x);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    add_output(out[i], bit(op.differentiable_outputs, i));
    if (bit(op.saves.outputs, i)) saved_[in.size() + i].save(block_of(out[i]));
  }
  absent_ = out[0].impl()->absent;
  if (live_inputs() == 1) set_kind(autograd::Producer::local_single);
}

void OpNode::save_input(size_t i, const Tensor& x) {
  if (x.storage()->redistributed() && saving_enabled())
    if (auto recipe = autograd::recipe_of(x)) return void(recipes_.emplace_back(i, std::move(recipe)));
  saved_[i].save(x);
}

Tensor OpNode::saved_input(size_t i) const {
  for (const auto& [at, recipe] : recipes_)
    if (at == i) return block_of(autograd::follow(*recipe, op_.name));
  const Tensor& saved = saved_[i].get(op_.name);
  return saved.defined() ? block_of(saved) : Tensor();
}

void OpNode::each_recipe(const std::function<void(const autograd::Recipe&)>& f) const {
  for (const auto& [at, recipe] : recipes_) f(*recipe);
}

// Rule B1: what other outputs make partial, this one's cotangent must be too.
void OpNode::promote(std::vector<Cotangent>& cotangents) const {
  std::vector<OutputState> live;
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].value.defined()) live.push_back({outputs[i].layout, cotangents[i].partial});
  dist::AxisMask axes = autograd::promoted_axes(live);
  for (size_t i = 0; i < cotangents.size(); ++i) {
    if (!cotangents[i].value.defined()) continue;
    autograd::keep_on_first(cotangents[i], outputs[i].layout,
                            axes & autograd::replicated_axes(outputs[i].layout) & ~cotangents[i].partial);
  }
}

std::vector<Cotangent> OpNode::backward(std::span<const Cotangent> given) {
  detail::AutocastPause within;
  if (released_)
    throw GradError(op_message(op_.name,
                               "backward ran through this graph already and let go of its saved tensors; pass "
                               "{.retain_graph = true} to the first call"));
  std::span<const Cotangent> cotangents = given;
  std::vector<Cotangent> promoted;
  if (outputs.size() > 1) {  // a single output makes no other one partial
    promoted.assign(given.begin(), given.end());
    promote(promoted);
    cotangents = promoted;
  }
  std::vector<OutputState> states;
  std::vector<Tensor> grads, in_values, out_values, result(inputs.size());
  states.reserve(cotangents.size());
  grads.reserve(cotangents.size());
  in_values.reserve(inputs.size());
  out_values.reserve(cotangents.size());
  for (size_t i = 0; i < cotangents.size(); ++i) {
    grads.push_back(cotangents[i].value);
    if (grads.back().defined()) states.push_back({outputs[i].layout, cotangents[i].partial});
  }
  auto needs = std::make_unique<bool[]>(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    needs[i] = inputs[i].live();
    in_values.push_back(saved_input(i));
  }
  for (size_t i = inputs.size(); i < saved_.size(); ++i) out_values.push_back(saved_[i].get(op_.name));
  if (last_run) release_saved();  // so that what only this node held is the call's own
  if (absent_) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].live()) result[i] = detail::make_tensor(types_[i].shape, types_[i].dtype, Device::Meta);
  } else {
    op_.backward({op_, attributes(), in_values, out_values, grads, types_, {needs.get(), inputs.size()}}, result);
  }
  std::vector<Cotangent> out(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (result[i].defined()) out[i] = {std::move(result[i]), autograd::input_mask(types_[i].layout, states)};
  return out;
}

void OpNode::release_saved() {
  released_ = true;
  for (auto& s : saved_) s.value = {};
  recipes_.clear();
}

}  // namespace cleave
