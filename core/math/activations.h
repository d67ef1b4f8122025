// Activations and their derivatives, from one exponential each. Sums of two products are avoided: the compiler may fuse
// either product, and not the same one in a vectorised loop and in its remainder.
#pragma once
#include <cleave/core/math/exp.h>

namespace cleave::math {

namespace detail {

/// Where sigmoid(x) and x*sigmoid(x) have long reached their limits; keeps infinities out of products with 0.
template <class T>
inline constexpr T kFar = sizeof(T) == 4 ? T(200) : T(1000);
/// Likewise for the GELUs.
template <class T>
inline constexpr T kGeluFar = sizeof(T) == 4 ? T(20) : T(50);

template <class T>
CLEAVE_HD T at_least(T x, T low) {
  return x < low ? low : x;
}
template <class T>
CLEAVE_HD T inside(T x, T bound) {
  x = x < -bound ? -bound : x;
  return x > bound ? bound : x;
}

template <class T>
inline constexpr T kSqrt2OverPi = T(0.79788456080286535588);
template <class T>
inline constexpr T kGeluCubic = T(0.044715);

/// exp(-2u), u the argument of the tanh in GELU.
template <class T>
CLEAVE_HD T gelu_tanh_exp(T x) {
  return exp_above(x * (T(-2) * kSqrt2OverPi<T> + (T(-2) * kSqrt2OverPi<T> * kGeluCubic<T>)*(x * x)));
}

}  // namespace detail

CLEAVE_HD float tanh(float x) {
  float e = detail::expm1_inside(detail::inside(2.0f * x, 20.0f));
  return e / (e + 2.0f);
}
CLEAVE_HD double tanh(double x) { return ::tanh(x); }

template <class T>
CLEAVE_HD T sigmoid(T x) {
  return T(1) / (T(1) + detail::exp_above(-x));
}

template <class T>
CLEAVE_HD T silu(T x) {
  x = detail::at_least(x, -detail::kFar<T>);
  return x / (T(1) + detail::exp_above(-x));
}
template <class T>
CLEAVE_HD T silu_derivative(T x) {
  x = detail::inside(x, detail::kFar<T>);
  T s = sigmoid(x);
  return s + x * s * (T(1) - s);
}

template <class T>
CLEAVE_HD T softplus(T x) {
  T magnitude = x < 0 ? -x : x;
  return (x > 0 ? x : T(0)) + log1p(exp(-magnitude));
}

/// After Juffa: an odd polynomial near 0, else 1 - exp(polynomial).
CLEAVE_HD float erf(float x) {
  float t = x < 0 ? -x : x, s = x * x;
  t = t > 4.0f ? 4.0f : t;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  float u = -3.88396438e-3f * t + 2.42546219e-2f;
  float t2 = t * t;
  far = far * t2 + u;
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  detail::Reduced e = detail::reduce_exp(far);
  far = 1.0f - detail::scale((e.tail + e.r) + 1.0f, e.k);
  far = from_bits(to_bits(far) | (to_bits(x) & 0x80000000u));
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? far : near;
}
CLEAVE_HD double erf(double x) { return ::erf(x); }

template <class T>
CLEAVE_HD T erf_derivative(T x) {
  return T(1.12837916709551257390) * exp(-x * x);
}

template <class T>
CLEAVE_HD T gelu(T x) {
  x = detail::at_least(x, -detail::kGeluFar<T>);
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
CLEAVE_HD T gelu_derivative(T x) {
  x = detail::inside(x, detail::kGeluFar<T>);
  T below = T(0.5) + T(0.5) * erf(x * T(0.70710678118654752440));
  return below + x * T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

/// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)).
template <class T>
CLEAVE_HD T gelu_tanh(T x) {
  x = detail::at_least(x, -detail::kGeluFar<T>);
  return x / (T(1) + detail::gelu_tanh_exp(x));
}
template <class T>
CLEAVE_HD T gelu_tanh_derivative(T x) {
  x = detail::inside(x, detail::kGeluFar<T>);
  T s = T(1) / (T(1) + detail::gelu_tanh_exp(x));
  T slope = T(2) * detail::kSqrt2OverPi<T> + (T(6) * detail::kSqrt2OverPi<T> * detail::kGeluCubic<T>)*(x * x);
  return s + x * slope * (s * (T(1) - s));
}

}  // namespace cleave::math
