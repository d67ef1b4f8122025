#include <cleave/core/cpu/loops/convert.h>
#include <cleave/core/math/half.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

// Element types as stored: distinct types for what is kept in an integer.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <class T, class E>
[[gnu::always_inline]] inline T to_compute(E e) {
  return static_cast<T>(e);
}
template <class T>
[[gnu::always_inline]] inline T to_compute(Bf16 e) {
  return static_cast<T>(math::from_bf16(e.bits));
}
template <class T>
[[gnu::always_inline]] inline T to_compute(F16 e) {
  return static_cast<T>(math::from_f16(e.bits));
}
template <class T>
[[gnu::always_inline]] inline T to_compute(Bool e) {
  return static_cast<T>(e.value != 0);
}

template <class E>
struct To {
  template <class T>
  [[gnu::always_inline]] static E from(T v) {
    return static_cast<E>(v);
  }
};
// Narrow integers wrap, also from floats within the range of the wider type.
template <>
struct To<uint8_t> {
  [[gnu::always_inline]] static uint8_t from(int64_t v) { return static_cast<uint8_t>(v); }
  [[gnu::always_inline]] static uint8_t from(double v) { return static_cast<uint8_t>(static_cast<int32_t>(v)); }
};
template <>
struct To<Bf16> {
  template <class T>
  [[gnu::always_inline]] static Bf16 from(T v) {
    return {math::to_bf16(static_cast<float>(v))};
  }
};
template <>
struct To<F16> {
  template <class T>
  [[gnu::always_inline]] static F16 from(T v) {
    return {math::to_f16(static_cast<float>(v))};
  }
};
template <>
struct To<Bool> {
  template <class T>
  [[gnu::always_inline]] static Bool from(T v) {
    return {static_cast<uint8_t>(v != 0)};
  }
};

template <class E, class T>
void load(const void* from, int64_t stride, int64_t n, void* to) {
  const E* __restrict x = static_cast<const E*>(from);
  T* __restrict y = static_cast<T*>(to);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = to_compute<T>(x[i]);
  } else if (stride == 0) {
    T value = n > 0 ? to_compute<T>(x[0]) : T{};
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = to_compute<T>(x[i * stride]);
  }
}

template <class E, class T>
void store(const void* from, int64_t n, void* to, int64_t stride) {
  const T* __restrict x = static_cast<const T*>(from);
  E* __restrict y = static_cast<E*>(to);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = To<E>::from(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * stride] = To<E>::from(x[i]);
  }
}

template <class U>
void copy(const void* from, int64_t from_stride, int64_t n, void* to, int64_t to_stride) {
  const U* __restrict x = static_cast<const U*>(from);
  U* __restrict y = static_cast<U*>(to);
  if (from_stride == 1 && to_stride == 1) {
    __builtin_memcpy(y, x, static_cast<size_t>(n) * sizeof(U));
  } else if (from_stride == 0 && to_stride == 1) {
    U value = n > 0 ? x[0] : U{};
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
  }
}

// A tile goes through a small buffer: its rows are read and written whole, and the strided steps stay in it.
template <class U>
void transpose(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, int64_t to_stride) {
  constexpr int64_t kTile = 64 / sizeof(U) > 16 ? 64 / sizeof(U) : 16;
  const U* __restrict x = static_cast<const U*>(from);
  U* __restrict y = static_cast<U*>(to);
  alignas(64) U tile[kTile * kTile];
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    int64_t nr = rows - r0 < kTile ? rows - r0 : kTile;
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      int64_t nc = columns - c0 < kTile ? columns - c0 : kTile;
      if (nr == kTile && nc == kTile) {
        for (int64_t c = 0; c < kTile; ++c)
          __builtin_memcpy(tile + c * kTile, x + (c0 + c) * from_stride + r0, kTile * sizeof(U));
        for (int64_t r = 0; r < kTile; ++r)
          for (int64_t c = 0; c < kTile; ++c) y[(r0 + r) * to_stride + c0 + c] = tile[c * kTile + r];
      } else {
        for (int64_t r = r0; r < r0 + nr; ++r)
          for (int64_t c = c0; c < c0 + nc; ++c) y[r * to_stride + c] = x[c * from_stride + r];
      }
    }
  }
}

}  // namespace

// Rows in the order of DType.
constinit const ConvertLoops convert_loops = {
    {{load<double, float>, load<double, double>, load<double, int64_t>},
     {load<float, float>, load<float, double>, load<float, int64_t>},
     {load<Bf16, float>, load<Bf16, double>, load<Bf16, int64_t>},
     {load<F16, float>, load<F16, double>, load<F16, int64_t>},
     {load<int64_t, float>, load<int64_t, double>, load<int64_t, int64_t>},
     {load<int32_t, float>, load<int32_t, double>, load<int32_t, int64_t>},
     {load<uint8_t, float>, load<uint8_t, double>, load<uint8_t, int64_t>},
     {load<Bool, float>, load<Bool, double>, load<Bool, int64_t>}},
    {{store<double, float>, store<double, double>, store<double, int64_t>},
     {store<float, float>, store<float, double>, store<float, int64_t>},
     {store<Bf16, float>, store<Bf16, double>, store<Bf16, int64_t>},
     {store<F16, float>, store<F16, double>, store<F16, int64_t>},
     {store<int64_t, float>, store<int64_t, double>, store<int64_t, int64_t>},
     {store<int32_t, float>, store<int32_t, double>, store<int32_t, int64_t>},
     {store<uint8_t, float>, store<uint8_t, double>, store<uint8_t, int64_t>},
     {store<Bool, float>, store<Bool, double>, store<Bool, int64_t>}},
    {copy<uint8_t>, copy<uint16_t>, copy<uint32_t>, copy<uint64_t>},
    {transpose<uint8_t>, transpose<uint16_t>, transpose<uint32_t>, transpose<uint64_t>},
};

}  // namespace cleave::cpu::CLEAVE_ISA
