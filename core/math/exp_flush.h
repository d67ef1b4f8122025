// The exponential of softmax: half the work of exp, with results below 2^-126 flushed to 0.
#pragma once
#include <cleave/core/math/exp.h>

namespace cleave::math {

/// Below about -87.7 it gives 0, above about 88.4 infinity; NaN passes.
CLEAVE_HD float exp_flush(float x) {
  x = x < -87.8f ? -87.8f : x;
  x = x > 88.5f ? 88.5f : x;
  float n = x * detail::kLog2e + detail::kRound;
  float s = from_bits((to_bits(n) << 23) + 0x3f800000u);  // 2^n: 0 at the lower bound, infinity at the upper
  n -= detail::kRound;
  float r = x - n * detail::kLn2High;
  r = r - n * detail::kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * (r * r) + r + 1.0f) * s;
}
CLEAVE_HD double exp_flush(double x) { return ::exp(x); }

}  // namespace cleave::math
