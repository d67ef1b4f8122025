// Vectors of 64 bytes in GCC's vector extension, for reductions: the number of lanes, and so the order of a sum, is
// the same for every instruction set. Only for files in this folder.
#pragma once
#include <cstdint>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

template <class T>
struct SimdOf;
template <>
struct SimdOf<float> {
  typedef float type __attribute__((vector_size(64)));
  typedef float loose __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct SimdOf<double> {
  typedef double type __attribute__((vector_size(64)));
  typedef double loose __attribute__((vector_size(64), aligned(8), may_alias));
};
template <class T>
using Simd = typename SimdOf<T>::type;

template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

// Vectors go by reference: passing them by value would depend on the instruction set. Copy the result into a Simd
// before it is handed on: other references to it would forget that it is not aligned.
template <class T>
[[gnu::always_inline]] inline const typename SimdOf<T>::loose& load(const T* p) {
  return *reinterpret_cast<const typename SimdOf<T>::loose*>(p);
}

// Some lanes of a vector; the functions below halve it.
#define CLEAVE_LANES(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)

template <class T>
[[gnu::always_inline]] inline T total(const Simd<T>& v) {
  if constexpr (sizeof(T) == 4) {
    auto a = CLEAVE_LANES(v, 0, 1, 2, 3, 4, 5, 6, 7) + CLEAVE_LANES(v, 8, 9, 10, 11, 12, 13, 14, 15);
    auto b = CLEAVE_LANES(a, 0, 1, 2, 3) + CLEAVE_LANES(a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
  } else {
    auto a = CLEAVE_LANES(v, 0, 1, 2, 3) + CLEAVE_LANES(v, 4, 5, 6, 7);
    return (a[0] + a[2]) + (a[1] + a[3]);
  }
}

template <class T>
[[gnu::always_inline]] inline T total(const T (&lanes)[kLanes<T>]) {
  Simd<T> v = load(lanes);
  return total<T>(v);
}

template <class T>
[[gnu::always_inline]] inline T greater(T a, T b) {
  return b > a ? b : a;
}

template <class T>
[[gnu::always_inline]] inline T largest(const Simd<T>& v) {
  if constexpr (sizeof(T) == 4) {
    auto a = CLEAVE_LANES(v, 0, 1, 2, 3, 4, 5, 6, 7), b = CLEAVE_LANES(v, 8, 9, 10, 11, 12, 13, 14, 15);
    a = b > a ? b : a;
    auto c = CLEAVE_LANES(a, 0, 1, 2, 3), d = CLEAVE_LANES(a, 4, 5, 6, 7);
    c = d > c ? d : c;
    return greater(greater<T>(c[0], c[2]), greater<T>(c[1], c[3]));
  } else {
    auto a = CLEAVE_LANES(v, 0, 1, 2, 3), b = CLEAVE_LANES(v, 4, 5, 6, 7);
    a = b > a ? b : a;
    return greater(greater<T>(a[0], a[2]), greater<T>(a[1], a[3]));
  }
}
#undef CLEAVE_LANES

/// Sum over i < n of a term: lanes(i, sum) adds those from i on to a vector, one(i) gives a single one.
template <class T, class Lanes, class One>
[[gnu::always_inline]] inline T sum_of(int64_t n, Lanes lanes, One one) {
  Simd<T> a = {}, b = {}, c = {}, d = {};
  constexpr int64_t L = kLanes<T>;
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    lanes(i, a);
    lanes(i + L, b);
    lanes(i + 2 * L, c);
    lanes(i + 3 * L, d);
  }
  for (; i + L <= n; i += L) lanes(i, a);
  T sum = total<T>((a + b) + (c + d));
  for (; i < n; ++i) sum += one(i);
  return sum;
}

template <class T>
[[gnu::always_inline]] inline T sum_row(const T* x, int64_t n) {
  return sum_of<T>(
      n, [&](int64_t i, Simd<T>& sum) { sum += load(x + i); }, [&](int64_t i) { return x[i]; });
}

template <class T>
[[gnu::always_inline]] inline T dot_row(const T* x, const T* y, int64_t n) {
  return sum_of<T>(
      n, [&](int64_t i, Simd<T>& sum) { sum += load(x + i) * load(y + i); }, [&](int64_t i) { return x[i] * y[i]; });
}

/// The largest element, -inf of none; NaN never wins.
template <class T>
[[gnu::always_inline]] inline T max_row(const T* x, int64_t n) {
  constexpr int64_t L = kLanes<T>;
  const T lowest = -__builtin_inff();
  Simd<T> a = lowest - Simd<T>{}, b = a;
  int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    Simd<T> u = load(x + i), v = load(x + i + L);
    a = u > a ? u : a;
    b = v > b ? v : b;
  }
  a = a > b ? a : b;
  for (; i + L <= n; i += L) {
    Simd<T> u = load(x + i);
    a = u > a ? u : a;
  }
  T best = largest<T>(a);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace
}  // namespace cleave::cpu::CLEAVE_ISA
