// Tensors put together.
#pragma once
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave {

/// Along an existing dim; other sizes equal; dtypes promote. Throws ValueError for an empty list.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// Along a new dim; shapes equal.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// `before` and `after` elements of `value` around one dim.
Tensor pad(const Tensor& x, int64_t dim, int64_t before, int64_t after, double value = 0.0);

}  // namespace cleave
