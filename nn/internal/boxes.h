// Boxes of a row-major tensor as contiguous runs of its bytes.
#pragma once
#include <algorithm>
#include <cstdint>

#include <cleave/core/shape.h>
#include <cleave/dist/layout.h>

namespace cleave::nn::detail {

/// Bytes of the contiguous runs that a box consists of; 0 for an empty one.
inline int64_t run_bytes(const Shape& global, const Shape& box, int64_t element) {
  int64_t run = element;
  for (int d = box.rank() - 1; d >= 0; --d) {
    run *= box[d];
    if (box[d] != global[d]) break;
  }
  return run;
}

/// Calls f(offset in the tensor, offset in the dense box, bytes) for each run, in order.
template <class F>
void each_run(const Shape& global, const dist::Box& box, int64_t element, F&& f) {
  int64_t total = numel(box.shape) * element, run = run_bytes(global, box.shape, element);
  if (total == 0) return;
  Strides strides = contiguous_strides(global);
  Shape index(box.shape.rank(), 0);
  for (int64_t at = 0; at < total; at += run) {
    int64_t where = 0, rest = at / element;
    for (int d = box.shape.rank() - 1; d >= 0; --d) {
      index[d] = rest % box.shape[d];
      rest /= box.shape[d];
      where += (box.offset[d] + index[d]) * strides[d];
    }
    f(where * element, at, run);
  }
}

}  // namespace cleave::nn::detail
