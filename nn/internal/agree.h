// The ranks agree on the global shapes of tensors of which each has a block.
#pragma once
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::nn::detail {

/// Tensors of these layouts (patterns allowed) off the tape, from this rank's plain blocks, which they share. One small
/// all-gather. Throws alike on all ranks: LayoutError for a distributed result or another number of dims, DTypeError
/// and ShapeError for blocks that do not fit together or are not the balanced ones.
std::vector<Tensor> agree_on_outputs(const std::vector<Tensor>& blocks, const std::vector<dist::Layout>& layouts);

}  // namespace cleave::nn::detail
