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

// Vectors go by reference: passing them by value would depend on the instruction set.
template <class T>
[[gnu::always_inline]] inline const typename SimdOf<T>::loose& load(const T* p) {
  return *reinterpret_cast<const typename SimdOf<T>::loose*>(p);
}

template <class T>
[[gnu::always_inline]] inline T total(const Simd<T>& v) {
  T part[kLanes<T>];
  __builtin_memcpy(part, &v, sizeof v);
  for (int step = kLanes<T> / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) part[i] += part[i + step];
  return part[0];
}

template <class T>
[[gnu::always_inline]] inline T largest(const Simd<T>& v) {
  T part[kLanes<T>];
  __builtin_memcpy(part, &v, sizeof v);
  for (int step = kLanes<T> / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) part[i] = part[i + step] > part[i] ? part[i + step] : part[i];
  return part[0];
}

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
    const auto &u = load(x + i), &v = load(x + i + L);
    a = u > a ? u : a;
    b = v > b ? v : b;
  }
  T best = largest<T>(a > b ? a : b);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace
}  // namespace cleave::cpu::CLEAVE_ISA
