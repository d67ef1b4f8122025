#include <cleave/autograd/gradient_rules.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::autograd {

AxisMask replicated_axes(const LayoutData* layout) {
  if (!layout) return 0;
  AxisMask axes = layout->mesh->all_axes() & ~layout->split() & ~layout->partial;
  // Over one rank a partial sum is the value: calling it R lets gradients share buckets whatever the mesh's unit axes.
  for (size_t a = 0; axes >> a; ++a)
    if (layout->mesh->size(static_cast<int>(a)) == 1) axes &= ~dist::axis_bit(static_cast<int>(a));
  return axes;
}

AxisMask completed_mask(Producer producer, bool parameter_only, AxisMask any, AxisMask all) {
  if (producer == Producer::replaced) return 0;  // also of parameters alone: its backward is not linear in a term
  if (parameter_only || producer == Producer::redistribution) return any;
  return producer == Producer::local_single ? all : 0;
}

AxisMask promoted_axes(std::span<const OutputState> outputs) {
  AxisMask demanded = 0;
  if (outputs.size() < 2) return demanded;
  for (const OutputState& o : outputs)
    if (o.layout) demanded |= o.layout->split() | o.layout->partial | o.cotangent;
  return demanded;
}

AxisMask input_mask(const LayoutData* input, std::span<const OutputState> outputs) {
  AxisMask partial = 0;
  for (const OutputState& o : outputs)
    if (o.layout) partial |= o.layout->split() | o.layout->partial | o.cotangent;
  return partial & replicated_axes(input);
}

const LayoutData* redistribution_gradient(const LayoutData* x, const LayoutData* to, AxisMask cotangent) {
  if (x->mesh != to->mesh) return gradient_layout(x, 0);
  return gradient_layout(x, replicated_axes(x) & replicated_axes(to) & cotangent);
}

const LayoutData* gradient_layout(const LayoutData* tensor, AxisMask mask) {
  if (!tensor) return nullptr;
  LayoutData content = *tensor;
  content.partial = mask;
  content.op = dist::ReduceOp::sum;
  return tensor->mesh->intern(content);
}

}  // namespace cleave::autograd
