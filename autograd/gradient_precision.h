// In which precision gradients of leaves are summed and sent.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave::autograd {

/// Of one leaf. f64 leaves are not touched by it: their gradients are f64 throughout.
struct GradientPrecision {
  /// Terms of a leaf of 16 bits are summed and its gradient is kept in it: f32, bf16 or f16. A leaf of 32 bits keeps
  /// f32.
  DType keep = DType::f32;
  /// Every collective of the reduction, on every axis, sends it: f32, bf16 or f16. 16-bit sums are formed in f32 by the
  /// communicators and rounded once.
  DType reduce = DType::f32;
  friend bool operator==(const GradientPrecision&, const GradientPrecision&) = default;
};

/// For gradients computed from now on; every rank alike. Throws DTypeError for other dtypes.
void set_gradient_precision(const Tensor& leaf, GradientPrecision precision);
/// The dtype in which the gradient of `leaf` is summed and kept.
DType kept_dtype(const Tensor& leaf);
/// The dtype in which it is sent.
DType reduced_dtype(const Tensor& leaf);

}  // namespace cleave::autograd
