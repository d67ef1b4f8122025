// Matrix products.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// a[..., m, k] @ b[..., k, n] -> [..., m, n]; leading dims broadcast; 1-D operands are a row (left) or a column
/// (right) whose dim leaves the result. Throws ShapeError if the inner sizes differ. Accumulates halves in f32. A
/// contracted dim that is split leaves a partial sum.
Tensor matmul(const Tensor& a, const Tensor& b);

struct LinearOptions {
  int64_t in_dims = 1;  ///< how many last dims of x (and of weight) are contracted
};
/// x[..., I...] contracted with weight[O..., I...], plus bias[O...]: [..., O...]. PyTorch's linear for one dim each.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const LinearOptions& options = {});

}  // namespace cleave
