// Sine and cosine. f32: reduced in f64, then the Cephes polynomials; f64: the C library.
#pragma once
#include <math.h>

#include <cleave/core/math/hd.h>

namespace cleave::math {

/// Up to here the f32 functions are accurate; callers use the C library beyond.
inline constexpr float kTrigLimit = 1e9f;

namespace detail {

CLEAVE_HD float sin_poly(float r) {
  float z = r * r;
  float p = -1.9515295891e-4f;
  p = p * z + 8.3321608736e-3f;
  p = p * z - 1.6666654611e-1f;
  return p * z * r + r;
}

CLEAVE_HD float cos_poly(float r) {
  float z = r * r;
  float p = 2.443315711809948e-5f;
  p = p * z - 1.388731625493765e-3f;
  p = p * z + 4.166664568298827e-2f;
  return p * z * z - 0.5f * z + 1.0f;
}

/// sin(r + q pi/2) for |r| <= pi/4.
CLEAVE_HD float sin_quadrant(float r, int32_t q) {
  float y = q & 1 ? cos_poly(r) : sin_poly(r);
  return from_bits(to_bits(y) ^ (static_cast<uint32_t>(q & 2) << 30));
}

CLEAVE_HD float sin_shifted(float x, int32_t quarter_turns) {
  double n = x * 0.63661977236758134 + 6755399441055744.0;  // 1.5 * 2^52 rounds, the quadrant is in the low bits
  int32_t q = static_cast<int32_t>(to_bits(n)) + quarter_turns;
  n -= 6755399441055744.0;
  double r = x - n * 1.5707963267341256;
  return sin_quadrant(static_cast<float>(r - n * 6.077100506506192e-11), q);
}

}  // namespace detail

CLEAVE_HD float sin(float x) { return detail::sin_shifted(x, 0); }
CLEAVE_HD float cos(float x) { return detail::sin_shifted(x, 1); }
CLEAVE_HD double sin(double x) { return ::sin(x); }
CLEAVE_HD double cos(double x) { return ::cos(x); }

}  // namespace cleave::math
