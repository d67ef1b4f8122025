// Exponentials and logarithms. f32: polynomials after Cephes (Moshier) to about 2 ulp; f64: the C library.
#pragma once
#include <math.h>

#include <cleave/core/math/hd.h>

namespace cleave::math {

namespace detail {

constexpr float kLog2e = 1.44269504f;
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer held in the low bits

struct Reduced {
  float tail;  // exp(r) - 1 - r over r^2 times r^2, that is exp(r) - 1 - r
  float r;
  int32_t k;  // x = k ln 2 + r
};

CLEAVE_HD Reduced reduce_exp(float x) {
  float n = x * kLog2e + kRound;
  int32_t k = static_cast<int32_t>(to_bits(n)) - 0x4b400000;
  n -= kRound;
  float r = x - n * kLn2High;
  r = r - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {p * (r * r), r, k};
}

CLEAVE_HD float power_of_two(int32_t k) { return from_bits(static_cast<uint32_t>(k + 127) << 23); }

/// x times 2^k for finite x and results that stay normal: the exponent is changed by an integer addition.
CLEAVE_HD float scale(float x, int32_t k) { return from_bits(to_bits(x) + (static_cast<uint32_t>(k) << 23)); }

/// exp(x) where it will be added to 1: exact at the upper end, constant below -86.
CLEAVE_HD float exp_above(float x) {
  x = x < -86.0f ? -86.0f : x;
  x = x > 89.0f ? 89.0f : x;
  Reduced e = reduce_exp(x);
  return ((e.tail + e.r) + 1.0f) * power_of_two(e.k - 1) * 2.0f;
}
CLEAVE_HD double exp_above(double x) { return ::exp(x); }

/// expm1 for |x| <= 80.
CLEAVE_HD float expm1_inside(float x) {
  Reduced e = reduce_exp(x);
  float s = power_of_two(e.k);
  return s * (e.tail + e.r) + (s - 1.0f);
}

}  // namespace detail

CLEAVE_HD float exp(float x) {
  x = x < -104.0f ? -104.0f : x;  // written so that NaN passes
  x = x > 89.0f ? 89.0f : x;
  detail::Reduced e = detail::reduce_exp(x);
  int32_t half = e.k >> 1;  // in two steps: 2^k itself may overflow or be subnormal
  return ((e.tail + e.r) + 1.0f) * detail::power_of_two(half) * detail::power_of_two(e.k - half);
}
CLEAVE_HD double exp(double x) { return ::exp(x); }

CLEAVE_HD float expm1(float x) {
  x = x < -20.0f ? -20.0f : x;
  x = x > 89.0f ? 89.0f : x;
  detail::Reduced e = detail::reduce_exp(x);
  float s = detail::power_of_two(e.k - 1);
  float y = (s * (e.tail + e.r) + (s - 0.5f)) * 2.0f;
  return x == 0 ? x : y;
}
CLEAVE_HD double expm1(double x) { return ::expm1(x); }

CLEAVE_HD float log(float x) {
  bool tiny = x < 1.17549435e-38f;
  uint32_t u = to_bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;  // mantissa into [sqrt(1/2), sqrt(2))
  float e = static_cast<float>((static_cast<int32_t>(u) >> 23) - (tiny ? 23 : 0));
  float f = from_bits((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  float y = f * z * p + e * detail::kLn2Low - 0.5f * z;
  y = (f + y) + e * detail::kLn2High;
  y = x == kInf<float> ? x : y;
  float outside = x == 0 ? -kInf<float> : kNan<float>;
  return x > 0 ? y : outside;
}
CLEAVE_HD double log(double x) { return ::log(x); }

CLEAVE_HD float log1p(float x) {
  float u = 1.0f + x;
  float lost = (x - (u - 1.0f)) / u;  // what the addition rounded off, to first order
  float y = log(u);
  y = u > 0 && u < kInf<float> ? y + lost : y;
  return u == 1.0f ? x : y;
}
CLEAVE_HD double log1p(double x) { return ::log1p(x); }

}  // namespace cleave::math
