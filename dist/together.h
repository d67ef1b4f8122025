// Many tensors in one collective: gradients that are reduce-scattered, parameters that are gathered, in buckets.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::dist {

/// The axes by which `part` splits tensors further than `whole` does, if it is `whole` with axes of more than one rank
/// appended to the lists of dims: a rank's block under `part` then lies within its block under `whole`. 0: the same
/// blocks. Nothing if it is no such layout. Partial axes do not matter.
std::optional<AxisMask> further_axes(const LayoutData* whole, const LayoutData* part);

/// A tensor to be reduced and cut: this rank's `block` (plain) of a tensor of global shape `shape` under `from`; the
/// result is its block under `to`, `further_axes` of the two being the axes of the collective.
struct ScatterItem {
  Tensor block;
  Shape shape;
  const LayoutData *from, *to;
};
/// The sums of the items over `axes`, each rank keeping its blocks, in one reduce-scatter in `dtype`: packed by the
/// rank that keeps them, uneven and empty ones as they are. Returns one dense buffer with the results one after the
/// other; while communication overlaps with computation, it is under way. Communicates. Members of the mesh only.
Tensor reduce_scatter_together(std::span<const ScatterItem> items, AxisMask axes, DType dtype, const char* label);

/// Distributed tensors that are gathered into others, in buckets: one all-gather for each.
class GatherBuckets {
 public:
  /// `limit`: bytes (in all, as gathered) up to which tensors share a collective.
  GatherBuckets(int64_t limit, const char* label) : limit_(limit), label_(label) {}
  /// Whether `add` takes them: `part` is split further than `whole`, by axes of their one mesh.
  static bool fits(const Tensor& part, const Tensor& whole);
  /// Writes the elements of `part` into those of `whole`, converted to its dtype, now or by `finish`. Communicates; the
  /// same calls on every rank.
  void add(const Tensor& part, const Tensor& whole);
  void finish();

 private:
  struct Item {
    Tensor part, whole;
  };
  struct Bucket {
    const MeshState* mesh;
    AxisMask axes;
    DType dtype;
    int64_t bytes = 0;
    std::vector<Item> items = {};
  };
  void gather(const Bucket& bucket) const;
  int64_t limit_;
  const char* label_;
  std::vector<Bucket> open_;  // one for each kind of collective
};

}  // namespace cleave::dist
