// Element-wise functions of one tensor. Shapes and layouts pass through; all are differentiable for floating dtypes.
// Integers and bool are taken as f32 by functions that need fractions.
#pragma once
#include <optional>

#include <cleave/core/tensor.h>

namespace cleave {

Tensor neg(const Tensor& x);
Tensor operator-(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor square(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);       ///< 1 / sqrt(x)
Tensor reciprocal(const Tensor& x);  ///< 1 / x
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);  ///< gradient 0, as ceil and round (half to even)
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
/// x ^ exponent, element by element.
Tensor pow(const Tensor& x, double exponent);
/// min(max(x, low), high); an open side is nullopt; NaN stays. Gradient 1 on the closed interval, else 0.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
/// bool results.
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor logical_not(const Tensor& x);

}  // namespace cleave
