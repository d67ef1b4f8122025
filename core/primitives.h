// The few operations on elements that every floor needs, on any device: no shapes inferred, nothing taped.
#pragma once
#include <cleave/core/tensor_impl.h>

namespace cleave::detail {

/// dst = src, converted to dst's dtype; equal shapes, any strides, no overlap. Meta: nothing.
void copy_view(Device device, const View& src, const View& dst);
/// Every element = value.
void fill_view(Device device, const View& dst, double value);
/// out = a + b; equal shapes, out's dtype that of a.
void add_views(Device device, const View& a, const View& b, const View& out);
/// acc += x; equal shapes.
void accumulate_view(Device device, const View& x, const View& acc);

/// The sub-block of `view` that starts at `offset` and has the sizes of `shape`.
View sub_view(const View& view, const Shape& offset, const Shape& shape);

/// A dense plain tensor with the elements of this plain tensor: itself if it is dense.
Tensor dense(const Tensor& x);
/// A dense copy in `dtype`.
Tensor dense_copy(const Tensor& x, DType dtype);

}  // namespace cleave::detail
