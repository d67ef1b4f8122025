// The same elements under other dims. Views share storage; `reshape` copies only where strides cannot say it.
#pragma once
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave {

/// Another shape with as many elements, row-major order kept; one size may be -1. A split dim that the new shape cuts
/// apart is local where the balanced blocks coincide and is redistributed else.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dims start..end (inclusive) as one.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// Without the dim, if its size is 1.
Tensor squeeze(const Tensor& x, int64_t dim);
/// Dims of size 1 repeated to `shape` (aligned from the right; -1 keeps a size).
Tensor expand(const Tensor& x, const Shape& shape);
/// Elements start, start+step, ... below end of one dim; negative bounds count from the end, bounds are clamped; step >
/// 0.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
/// One index of a dim, which goes away. Throws IndexError out of range.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// `length` elements from `start`, which must lie inside.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// Every index of a dim.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
/// Pieces of `size` along a dim, the last one smaller; or of the given sizes, which must add up.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
/// At most n pieces of equal size, the last one smaller.
std::vector<Tensor> chunk(const Tensor& x, int64_t n, int64_t dim = 0);

/// x with its block dense (x itself if it is); a copy of its own.
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);

}  // namespace cleave
