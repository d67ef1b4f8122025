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

/// Calls f(offset in the tensor, offset in the dense box, bytes) for each run, in order, and for no more of them than
/// lies in the bytes [begin, end) of the dense box: parts of one box can go to several threads.
template <class F>
void each_run(const Shape& global, const dist::Box& box, int64_t element, int64_t begin, int64_t end, F&& f) {
  if (begin >= end) return;
  int64_t run = run_bytes(global, box.shape, element);
  Strides strides = contiguous_strides(global);
  for (int64_t at = begin, next; at < end; at = next) {
    int64_t first = at / run * run, where = 0, rest = first / element;
    for (int d = box.shape.rank() - 1; d >= 0; --d) {
      where += (box.offset[d] + rest % box.shape[d]) * strides[d];
      rest /= box.shape[d];
    }
    next = std::min(end, first + run);
    f(where * element + at - first, at, next - at);
  }
}

/// For all runs.
template <class F>
void each_run(const Shape& global, const dist::Box& box, int64_t element, F&& f) {
  each_run(global, box, element, 0, numel(box.shape) * element, f);
}

}  // namespace cleave::nn::detail
