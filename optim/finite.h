// Whether gradients are finite, as all ranks know it.
#pragma once
#include <cleave/optim/clip.h>

namespace cleave::optim {

namespace detail {
bool all_finite(const std::vector<Tensor>& leaves);
}  // namespace detail

/// Whether no gradient of these parameters (or leaves) has a NaN or an infinity, on any rank: the same answer on all
/// ranks, also those that hold no part of some. Syncs pending gradients; leaves without a gradient are passed by.
/// Communicates: one number, over the ranks of the parameters' mesh, or of the world where they are on several or it
/// lacks ranks. Plain parameters alone: this rank's answer.
template <class Range>
bool all_finite(Range&& parameters) {
  return detail::all_finite(detail::leaves(std::forward<Range>(parameters)));
}

}  // namespace cleave::optim
