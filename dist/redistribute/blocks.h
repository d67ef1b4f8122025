// Packing and unpacking: pieces of a block, one after the other in a buffer.
#pragma once
#include <span>
#include <vector>

#include <cleave/core/tensor_impl.h>
#include <cleave/dist/layout.h>
#include <cleave/dist/redistribution.h>

namespace cleave::dist::steps {

/// What two boxes have in common; sizes of 0 if nothing.
Box overlap(const Box& a, const Box& b);
/// `box` as seen from the start of `origin`.
Box relative(const Box& box, const Box& origin);

/// A tensor of x's dtype and device for this rank's block under `layout`.
Tensor make_block(const Tensor& x, const LayoutData* layout);
/// x's elements under another layout with the same block, without a copy.
Tensor relabel(const Tensor& x, const LayoutData* layout);

/// Pieces of one block in the order of the ranks they go to or come from.
struct Pieces {
  void* data = nullptr;         ///< where the first begins; the others follow
  std::vector<int64_t> counts;  ///< elements of each
  Tensor buffer;                ///< owns `data`; undefined where the pieces lie so in the block itself
};
/// The pieces of `block`, given as boxes within it, copied together unless they lie so already.
Pieces pack(const Tensor& block, std::span<const Box> boxes);
/// Room for the pieces of `block` to be received: the block itself if they lie one after the other in it.
Pieces room(const Tensor& block, std::span<const Box> boxes);
/// Brings received pieces to their places in the block.
void unpack(const Pieces& pieces, const View& block, std::span<const Box> boxes);

/// The boxes of a step, made by `make()` when it runs for the first time: a group may have many members.
template <class Make>
const StepBoxes& boxes_of(const Step& step, Make make) {
  if (!step.boxes) step.boxes = std::make_shared<const StepBoxes>(make());
  return *step.boxes;
}

}  // namespace cleave::dist::steps
