// Element types, their sizes and their promotion.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <cleave/core/half.h>

namespace cleave {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };
inline constexpr int kDTypes = 8;

/// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t bytes[kDTypes] = {8, 4, 2, 2, 8, 4, 1, 1};
  return bytes[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::f16; }
constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }

/// "f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool".
std::string_view to_string(DType t);

/// The dtype of a binary op's result: the larger category (bool < integer < floating) wins, then the larger
/// size; bf16 with f16 gives f32, u8 with a signed integer gives the signed one (PyTorch's lattice, in which
/// every tensor counts alike whatever its rank).
DType promote(DType a, DType b);

/// The dtype in which sums of `t` are accumulated: f32 for the halves, i64 for integers and bool, else `t`.
constexpr DType accumulation(DType t) {
  if (is_half(t)) return DType::f32;
  return is_floating(t) ? t : DType::i64;
}

/// The dtype of a C++ element type: `dtype_of<float>() == DType::f32`.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, Half>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::u8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8 && std::is_signed_v<T>)
    return DType::i64;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4 && std::is_signed_v<T>)
    return DType::i32;
  else
    static_assert(sizeof(T) == 0, "no cleave dtype for this element type");
}

/// Calls `f` with a value of the C++ element type of `t`.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Half{});
    case DType::i64:
      return f(int64_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::u8:
      return f(uint8_t{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

}  // namespace cleave
