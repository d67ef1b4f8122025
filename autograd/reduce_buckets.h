// The reduction of many gradients, in buckets: one collective for each, or two (HSDP).
#pragma once
#include <functional>
#include <vector>

#include <cleave/autograd/gradient_rules.h>
#include <cleave/core/tensor.h>

namespace cleave::autograd {

/// A gradient to be brought from one layout to another of its tensor's mesh.
struct Reduction {
  Tensor block;  ///< this rank's, plain
  Shape shape;   ///< global
  const LayoutData *from, *to;
  DType wire;                        ///< what collectives send
  const void* leaf;                  ///< storage of the tensor whose gradient it is, for observers
  std::function<void(Tensor)> done;  ///< gets this rank's block under `to`, plain, in `wire` or the block's dtype
};

/// Gradients are added one after the other, in the same order on all ranks. Those that are summed over the same axes
/// and cut along the same axes share buckets: all-reduced if none is cut, else reduce-scattered over the axes that cut
/// them, and then all-reduced, the result alone, over the others. A bucket goes when the next gradient does not fit in,
/// the last ones by `finish`; while communication overlaps with computation that only starts them. What no such bucket
/// can do goes in steps of its own at once.
class ReduceBuckets {
 public:
  explicit ReduceBuckets(const char* label) : label_(label) {}
  void add(Reduction&& reduction);
  void finish();

 private:
  struct Bucket {
    const LayoutData* layout;  // of the first
    AxisMask scatter, reduce;
    DType wire;
    int64_t bytes = 0;
    std::vector<Reduction> items = {};
  };
  /// Scattered, its sum over the other axes still to come.
  struct Scattered {
    Tensor sums;
    const LayoutData* layout;
    AxisMask reduce;
    std::vector<Reduction> items;
  };
  void go(Bucket&& bucket);
  void all_reduce(Bucket&& bucket);
  void reduce_scatter(Bucket&& bucket);
  void complete_scattered();
  void alone(Reduction&& reduction);

  const char* label_;
  std::vector<Bucket> open_;  // one for each kind
  std::vector<Scattered> scattered_;
};

}  // namespace cleave::autograd
