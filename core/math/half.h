// Conversions of the 16-bit formats without branches, so that loops over them vectorise. Same results as core/half.h.
#pragma once
#include <cleave/core/math/hd.h>

namespace cleave::math {

CLEAVE_HD float from_bf16(uint16_t h) { return from_bits(static_cast<uint32_t>(h) << 16); }

CLEAVE_HD uint16_t to_bf16(float f) {
  uint32_t u = to_bits(f);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  uint32_t quiet_nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

CLEAVE_HD float from_f16(uint16_t h) {
  uint32_t u = h & 0x7fffu, sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  uint32_t finite = to_bits(from_bits(u << 13) * 5.192296858534828e33f);  // 2^112 moves the exponent, subnormals too
  uint32_t special = 0x7f800000u | (u << 13);
  return from_bits(sign | (u >= 0x7c00u ? special : finite));
}

CLEAVE_HD uint16_t to_f16(float f) {
  uint32_t u = to_bits(f), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  uint32_t normal = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
  uint32_t subnormal = to_bits(from_bits(u) + 0.5f) - 0x3f000000u;  // the addition rounds
  uint32_t special = 0x7c00u | (u > 0x7f800000u ? 0x200u : 0u);
  uint32_t out = u < 0x38800000u ? subnormal : normal;
  out = u >= 0x477ff000u ? special : out;
  return static_cast<uint16_t>(sign | out);
}

}  // namespace cleave::math
