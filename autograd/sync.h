// Sync: the gradient terms of leaves become gradients in their gradient layouts.
#pragma once
#include <memory>
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

/// Bytes up to which gradients that are reduced over the same axes share one collective, unless set otherwise.
inline constexpr int64_t kBucketBytes = int64_t{25} << 20;
/// This rank's setting, for gradients and for the parameters that optimizers gather; 0: each goes alone. Every rank
/// sets the same. Returns the one before; throws ValueError if negative.
int64_t set_bucket_bytes(int64_t bytes);
int64_t bucket_bytes();

/// Whether a leaf's gradient is to be reduced in backward as soon as it has its last term (ZeRO-2).
bool reduces_early(const Tensor& leaf);
void set_reduces_early(const Tensor& leaf, bool on);
/// Whether this rank ever had such a leaf: only then does a backward count terms.
bool any_reduces_early();

/// Whether what is started on this rank goes on while it computes: then terms are worth merging as soon as complete.
bool overlapping();

/// Merges the slots of tensors that are added one after the other, in the same order on all ranks. A bucket is reduced
/// when the next gradient does not fit in, the last ones by `finish`; while communication overlaps with computation
/// that only starts them.
class GradientMerge {
 public:
  GradientMerge();
  ~GradientMerge();
  GradientMerge(const GradientMerge&) = delete;
  GradientMerge& operator=(const GradientMerge&) = delete;

  /// Takes the terms; there must be some. Its result will have the layout of `tensor` with partial axes reduced, or
  /// `target` if given.
  void add(const Tensor& tensor, Slots& slots, const dist::LayoutData* target);
  /// The results in the order added.
  std::vector<Tensor> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Merges the terms of leaves into their gradients.
class LeafSync {
 public:
  /// Takes the leaf's terms, if it has any.
  void add(const Tensor& leaf);
  /// Puts the gradients in their places and runs the hooks.
  void finish();

 private:
  std::vector<Tensor> leaves_;
  GradientMerge merge_;
};

}  // namespace autograd
}  // namespace cleave
