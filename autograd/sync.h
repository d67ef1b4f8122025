// Sync: the gradient terms of leaves become gradients in their gradient layouts.
#pragma once
#include <span>
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave {

/// Reduces what `backward({.sync = false})` kept for these tensors into their gradients, in buckets; leaves without
/// pending terms are left alone. Communicates; every rank passes the same tensors in the same order. Hooks run after.
void sync_gradients(std::span<const Tensor> leaves);
inline void sync_gradients(const std::vector<Tensor>& leaves) { sync_gradients(std::span<const Tensor>(leaves)); }

namespace autograd {

class Slots;

/// Whether `leaf` has terms that were not synced.
bool has_pending(const Tensor& leaf);

/// Bytes up to which gradients that are reduced over the same axes share one collective.
inline constexpr int64_t kBucketBytes = int64_t{25} << 20;

/// Merges slots of several tensors, all at once: result i has the layout of tensors[i] with partial axes reduced, or
/// targets[i] if given. Empty slots give an undefined tensor.
std::vector<Tensor> merge_all(std::span<const Tensor> tensors, std::span<Slots* const> slots,
                              std::span<const dist::LayoutData* const> targets);

}  // namespace autograd
}  // namespace cleave
