// Layer and RMS normalization.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dims, whose sizes are `shape` (Ba et al. 2016); variance
/// in two passes, also where those dims are split. weight and bias may be undefined. Throws ShapeError unless x ends in
/// `shape` and they have it.
Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {}, double eps = 1e-6);

}  // namespace cleave
