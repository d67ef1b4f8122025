// Buckets: one collective for the same move of several tensors of one mesh and dtype.
#pragma once
#include <span>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::dist {

/// What a rank gets of a bucket: `blocks` are views of `memory`, one after the other.
struct Scattered {
  Tensor memory;
  std::vector<Tensor> blocks;
};
/// P -> S over `axes` for all of `terms`: tensor i, partial on `axes`, goes to `targets[i]`, which splits dims over
/// these axes behind those that split them already. One reduce-scatter, with pieces of any size, also none; while
/// communication overlaps with computation it is only started. Members of the mesh call it.
Scattered reduce_scatter_bucket(std::span<const Tensor> terms, std::span<const LayoutData* const> targets,
                                AxisMask axes, const char* label);

/// S -> R over `axes`: the elements of blocks[i], split over these axes behind others, into whole[i], the same tensor
/// without them, of the same dtype. One all-gather. Members of the mesh call it.
void all_gather_bucket(std::span<const Tensor> blocks, std::span<const Tensor> whole, AxisMask axes, const char* label);

/// The axes that `split` has at the ends of its dims' lists beyond those of `whole`, if that is all that they differ
/// in; 0 otherwise.
AxisMask appended_axes(const LayoutData* whole, const LayoutData* split);

}  // namespace cleave::dist
