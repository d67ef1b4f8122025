// Section 6 of the design as pure functions of axis sets: on which mesh axes a gradient is a partial sum.
#pragma once
#include <span>

#include <cleave/dist/layout.h>

namespace cleave::autograd {

using dist::AxisMask;
using dist::LayoutData;

/// The axes of more than one rank on which a tensor of this layout is R (none for a plain tensor): a gradient can be
/// partial on these only.
AxisMask replicated_axes(const LayoutData* layout);

/// How the producer of a tensor takes its cotangent.
enum class Producer : uint8_t {
  redistribution,  ///< any partial axes
  local_single,    ///< a local op with one input that requires grad: partial axes pass if every slot has them
  local_several,   ///< a local op with several such inputs: R
  replaced         ///< a hand-written backward: R
};

/// Policy M, step 2: the partial axes the cotangent keeps when all consumers have delivered. `any` and `all` are the
/// union and the intersection of the slots' masks.
AxisMask completed_mask(Producer producer, bool parameter_only, AxisMask any, AxisMask all);

/// One live output of a local op with its cotangent.
struct OutputState {
  const LayoutData* layout;
  AxisMask cotangent;  ///< its partial axes
};
/// Rule B1: the axes on which the cotangents of R outputs must be made partial (keep on first) because another live
/// output is S or P there or has a partial cotangent. Empty for a single output.
AxisMask promoted_axes(std::span<const OutputState> outputs);

/// The table: partial axes of the gradient of an input of a local op, cotangents being promoted.
AxisMask input_mask(const LayoutData* input, std::span<const OutputState> outputs);

/// The layout of the gradient of `redistribute(x, to)` for a cotangent that is partial on `cotangent`: x S -> S; x P ->
/// R; x R -> P if `to` is R there and the cotangent is P, else R.
const LayoutData* redistribution_gradient(const LayoutData* x, const LayoutData* to, AxisMask cotangent);

/// The layout of a gradient of a tensor of this layout: the same splits, partial on `mask` only. Null stays null.
const LayoutData* gradient_layout(const LayoutData* tensor, AxisMask mask);

}  // namespace cleave::autograd
