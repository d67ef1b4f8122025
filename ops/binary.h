// Element-wise functions of two tensors, or a tensor and a number, with broadcasting and promotion.
//
// Shapes broadcast from the last dim. Dtypes promote (core/dtype.h); a number takes the tensor's dtype, except that a
// floating number makes integers and bool f32; comparisons give bool. Partial sums: add and sub of two, mul and div
// by one side, and scaling by numbers pass them on; everything else resolves them first.
#pragma once
#include <cleave/core/tensor.h>
#include <cleave/ops/number.h>

namespace cleave {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  ///< integers divide in f32
Tensor pow(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN wins; ties share the gradient evenly
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, const Tensor& b);  ///< floor(a / b); not differentiable
Tensor remainder(const Tensor& a, const Tensor& b);     ///< a - b floor(a / b), the divisor's sign; not differentiable

Tensor add(const Tensor& a, Number b);
Tensor sub(const Tensor& a, Number b);
Tensor mul(const Tensor& a, Number b);
Tensor div(const Tensor& a, Number b);
Tensor maximum(const Tensor& a, Number b);
Tensor minimum(const Tensor& a, Number b);

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, Number b);
Tensor operator-(const Tensor& a, Number b);
Tensor operator*(const Tensor& a, Number b);
Tensor operator/(const Tensor& a, Number b);
Tensor operator+(Number a, const Tensor& b);
Tensor operator-(Number a, const Tensor& b);
Tensor operator*(Number a, const Tensor& b);
Tensor operator/(Number a, const Tensor& b);

/// bool results.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Number b);
Tensor ne(const Tensor& a, Number b);
Tensor lt(const Tensor& a, Number b);
Tensor le(const Tensor& a, Number b);
Tensor gt(const Tensor& a, Number b);
Tensor ge(const Tensor& a, Number b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);

/// a where condition (bool) holds, else b; all three broadcast. Throws DTypeError for another condition.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// x with `value` where mask (bool) holds.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);

}  // namespace cleave
