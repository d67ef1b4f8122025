// Views for kernel tests: any dtype, several layouts in memory, elements read and written as numbers.
#pragma once
#include <cleave/core/view.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace cleave::testing {

inline constexpr DType kAllDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                       DType::i64, DType::i32, DType::u8,   DType::boolean};
inline constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

/// How a view lies in its memory: dense, dims reversed, every third element, or rows with gaps between.
enum class Lie { dense, reversed, strided, gaps };
inline constexpr Lie kLies[] = {Lie::dense, Lie::reversed, Lie::strided, Lie::gaps};

/// A view and its memory, which starts as bytes 0xff: NaN for floats.
struct Data {
  Data(DType dtype, const Shape& shape, Lie lie = Lie::dense) {
    view = {nullptr, dtype, shape, contiguous_strides(shape)};
    int rank = shape.rank();
    if (lie == Lie::reversed) {
      int64_t step = 1;
      for (int d = 0; d < rank; ++d) {
        view.strides[d] = step;
        step *= std::max<int64_t>(shape[d], 1);
      }
    } else if (lie == Lie::strided) {
      for (int d = 0; d < rank; ++d) view.strides[d] *= 3;
    } else if (lie == Lie::gaps && rank > 0) {
      for (int d = 0; d + 1 < rank; ++d) view.strides[d] *= 2;
    }
    bytes.assign(static_cast<size_t>((numel(shape) * 3 + 64) * size_of(dtype)), 0xff);
    view.data = bytes.data();
  }
  Data(const Data&) = delete;

  View view;
  std::vector<unsigned char> bytes;
};

/// The address of element `index` of the row-major order.
inline char* address(const View& v, int64_t index) {
  int64_t at = 0;
  for (int d = v.rank() - 1; d >= 0; --d) {
    at += index % v.shape[d] * v.strides[d];
    index /= v.shape[d];
  }
  return static_cast<char*>(v.data) + at * size_of(v.dtype);
}

/// i64 elements above 2^53 are rounded.
inline double get(const View& v, int64_t index) {
  return visit_dtype(v.dtype, [&](auto e) {
    std::memcpy(&e, address(v, index), sizeof e);
    return static_cast<double>(e);
  });
}

inline void set(const View& v, int64_t index, double value) {
  visit_dtype(v.dtype, [&](auto e) {
    using T = decltype(e);
    if constexpr (std::is_same_v<T, bool>)
      e = value != 0;
    else if constexpr (std::is_class_v<T>)
      e = T{static_cast<float>(value)};
    else
      e = static_cast<T>(value);
    std::memcpy(address(v, index), &e, sizeof e);
  });
}

/// Sets all elements to f(index).
template <class F>
void set_all(const View& v, const F& f) {
  for (int64_t i = 0; i < v.numel(); ++i) set(v, i, f(i));
}

/// A repeatable number in [-1, 1] for an index.
inline double noise(int64_t i) {
  auto h = static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  return static_cast<double>(h >> 11) * 0x1p-52 - 1;
}

/// The relative rounding error of a dtype, 0 for integers.
inline double epsilon(DType t) {
  switch (t) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0;
  }
}

/// Whether `got` is `want` up to relative and absolute errors; NaN is NaN.
inline bool close(double got, double want, double relative, double absolute = 0) {
  if (std::isnan(want)) return std::isnan(got);
  if (got == want) return true;
  return std::abs(got - want) <= relative * std::abs(want) + absolute;
}

}  // namespace cleave::testing
