// Arithmetic that means the same for the three compute types: integers wrap and never trap, NaN wins extrema.
#pragma once
#include <math.h>

#include <cleave/core/math/hd.h>

namespace cleave::math {

template <class T>
CLEAVE_HD bool is_nan(T x) {
  return x != x;
}

template <class T>
CLEAVE_HD T add(T a, T b) {
  return a + b;
}
CLEAVE_HD int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class T>
CLEAVE_HD T sub(T a, T b) {
  return a - b;
}
CLEAVE_HD int64_t sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <class T>
CLEAVE_HD T mul(T a, T b) {
  return a * b;
}
CLEAVE_HD int64_t mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
CLEAVE_HD T neg(T a) {
  return -a;
}
CLEAVE_HD int64_t neg(int64_t a) { return sub(int64_t{0}, a); }

template <class T>
CLEAVE_HD T abs(T x) {
  return x < 0 ? neg(x) : x;
}
CLEAVE_HD float abs(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }
CLEAVE_HD double abs(double x) { return ::fabs(x); }

template <class T>
CLEAVE_HD T sign(T x) {
  T s = static_cast<T>((x > 0) - (x < 0));
  return is_nan(x) ? x : s;
}
template <class T>
CLEAVE_HD T maximum(T a, T b) {
  return a > b || is_nan(a) ? a : b;
}
template <class T>
CLEAVE_HD T minimum(T a, T b) {
  return a < b || is_nan(a) ? a : b;
}

CLEAVE_HD float sqrt(float x) { return ::sqrtf(x); }
CLEAVE_HD double sqrt(double x) { return ::sqrt(x); }
CLEAVE_HD float floor(float x) { return ::floorf(x); }
CLEAVE_HD double floor(double x) { return ::floor(x); }
CLEAVE_HD float ceil(float x) { return ::ceilf(x); }
CLEAVE_HD double ceil(double x) { return ::ceil(x); }
CLEAVE_HD float round_even(float x) { return ::rintf(x); }
CLEAVE_HD double round_even(double x) { return ::rint(x); }
CLEAVE_HD float fmod(float a, float b) { return ::fmodf(a, b); }
CLEAVE_HD double fmod(double a, double b) { return ::fmod(a, b); }
CLEAVE_HD float pow(float a, float b) { return ::powf(a, b); }
CLEAVE_HD double pow(double a, double b) { return ::pow(a, b); }
CLEAVE_HD float atan2(float a, float b) { return ::atan2f(a, b); }
CLEAVE_HD double atan2(double a, double b) { return ::atan2(a, b); }

/// The remainder with the divisor's sign, exact as fmod is.
template <class T>
CLEAVE_HD T remainder(T a, T b) {
  T r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
CLEAVE_HD int64_t remainder(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/// The quotient that belongs to `remainder`: rounding a / b alone can be one too large.
template <class T>
CLEAVE_HD T floor_div(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b), q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  T f = floor(q);
  return q - f > T(0.5) ? f + 1 : f;
}
CLEAVE_HD int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return neg(a);
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

}  // namespace cleave::math
