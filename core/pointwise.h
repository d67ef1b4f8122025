// The element-wise functions: one list, from which every backend's table is made.
#pragma once
#include <cstdint>

namespace cleave {

/// Scalars of a call, read by the functions that name p, q (slopes, bounds, exponents).
struct PointwiseParams {
  double p = 0, q = 0;
};

/// Functions of 1 to 3 elements. `g` is a cotangent, `y` the function's own result. Computed in f64 for f64, in f32
/// for f32, bf16 and f16, in i64 for integers and bool, after conversion of every input to the compute type.
/// Groups: A any dtype, F floating only, C comparison or logic (any dtype in, the result is 0 or 1).
enum class Pointwise : uint8_t {
  // clang-format off
  // one input
  neg, abs, square, sign, relu,                                            // A
  add_scalar /* x + p */, rsub_scalar /* p - x */, mul_scalar /* x * p */, // A
  clamp /* into [p, q]; NaN stays */, max_scalar, min_scalar,              // A
  rdiv_scalar /* p / x */, pow_scalar /* x ^ p */,                         // F
  exp, log, log1p, expm1, sqrt, rsqrt, reciprocal, sin, cos, tanh, sigmoid, silu, softplus, erf,  // F
  gelu /* erf form */, gelu_tanh, floor, ceil, round,                      // F; round half to even
  is_nan, is_finite, logical_not,                                          // C
  eq_scalar, ne_scalar, lt_scalar, le_scalar, gt_scalar, ge_scalar,        // C
  // two inputs
  add, sub, mul, maximum, minimum /* NaN wins in both */,                  // A
  div, pow, atan2,                                                         // F
  floor_div, remainder /* sign of the divisor */,                          // A; integer x / 0 gives 0
  eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_xor,            // C
  // gradients, two inputs
  relu_grad /* (x, g) */, abs_grad /* (x, g): g*sign(x) */, square_grad /* 2xg */, clamp_grad /* (x, g): g inside [p, q], closed */,  // A
  log_grad /* (x, g) */, log1p_grad, sqrt_grad /* (y, g) */, rsqrt_grad /* (y, g) */, reciprocal_grad /* (y, g) */,  // F
  sin_grad, cos_grad /* (x, g) */, tanh_grad, sigmoid_grad /* (y, g) */, silu_grad, softplus_grad, erf_grad,      // F, (x, g)
  gelu_grad, gelu_tanh_grad, pow_scalar_grad /* (x, g): g p x^(p-1) */,                                           // F, (x, g)
  expm1_grad /* (y, g): g(y+1) */, rdiv_scalar_grad /* (x, g): -g p / x^2 */,                                     // F
  // three inputs
  where /* (c, a, b): c ? a : b, c bool */,                                // A
  mul_add /* a*b + c */,                                                   // A
  maximum_grad /* (a, b, g): a>b ? g : a==b ? g/2 : 0; the gradient of a */, minimum_grad,  // F
  div_grad_b /* (a, b, g): -g a / b^2 */, pow_grad_a /* (a, b, g): g b a^(b-1) */, pow_grad_b /* (a, b, g): g a^b ln a, 0 at a = 0 */,  // F
  count_
  // clang-format on
};

}  // namespace cleave
