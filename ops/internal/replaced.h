// Ops that replace themselves by local work and small collectives, with a backward of their own (section 6, rule 5).
#pragma once
#include <functional>

#include <cleave/ops/op.h>

namespace cleave {

/// Gradients of the inputs' blocks from the outputs' cotangents (undefined: zero), which come as R where an output is
/// R.
using ReplacedBackward = std::function<std::vector<Tensor>(std::span<const Tensor> cotangents)>;

/// Puts one node on the tape for outputs that were computed off it. `input_partial[i]`: the axes on which input i is R
/// and the gradient that `backward` returns is a partial sum.
void record_replaced(const char* name, Inputs in, std::span<Tensor> out, ReplacedBackward backward,
                     std::vector<dist::AxisMask> input_partial);

/// A distributed tensor from a block computed on this rank.
Tensor from_block(const Tensor& block, const Shape& global, const dist::LayoutData* layout);

}  // namespace cleave
