// The two 16-bit floating types: storage formats, computed in f32. Round to nearest, ties to even.
#pragma once
#include <cstdint>
#include <cstring>

namespace cleave {

namespace detail {
inline uint32_t float_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
inline float bits_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
}  // namespace detail

/// bfloat16: the upper half of an f32.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float f) {
    uint32_t u = detail::float_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet_nan = (u >> 16) | 0x40u;
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  operator float() const { return detail::bits_float(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE binary16.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float f) {
    uint32_t u = detail::float_bits(f), sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t out;
    if (u >= 0x7f800000u) {
      out = 0x7c00u | (u > 0x7f800000u ? 0x200u : 0u);
    } else if (u >= 0x477ff000u) {
      out = 0x7c00u;
    } else if (u < 0x38800000u) {  // subnormal: let an f32 addition do the rounding
      out = detail::float_bits(detail::bits_float(u) + 0.5f) - 0x3f000000u;
    } else {
      out = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | out);
  }
  operator float() const {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, u = bits & 0x7fffu;
    if (u >= 0x7c00u) return detail::bits_float(sign | 0x7f800000u | ((u & 0x3ffu) << 13));
    if (u >= 0x400u) return detail::bits_float(sign | ((u << 13) + 0x38000000u));
    float magnitude = static_cast<float>(u) * 5.9604644775390625e-8f;  // 2^-24
    return detail::bits_float(sign | detail::float_bits(magnitude));
  }
};

}  // namespace cleave
