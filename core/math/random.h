// Philox4x32-10 and what is made of its words. Element i of a tensor uses word i % 4 of counter i / 4; where it needs
// 64 bits, the words 2i (the low half) and 2i + 1 of the same numbering.
#pragma once
#include <cleave/core/math/activations.h>
#include <cleave/core/math/arithmetic.h>
#include <cleave/core/math/trig.h>

namespace cleave::math {

namespace detail {
CLEAVE_HD void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
  uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
  c1 = static_cast<uint32_t>(b);
  c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
  c3 = static_cast<uint32_t>(a);
}
}  // namespace detail

/// The same as philox() of core/random.h, unrolled so that loops over counters vectorise: on entry c0 and c1 are the
/// counter's halves, on return the four are its words.
CLEAVE_HD void philox(uint64_t seed, uint64_t call, uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) {
  constexpr uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  c2 = static_cast<uint32_t>(call);
  c3 = static_cast<uint32_t>(call >> 32);
  detail::philox_round(c0, c1, c2, c3, k0, k1);
  detail::philox_round(c0, c1, c2, c3, k0 + w0, k1 + w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 2 * w0, k1 + 2 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 3 * w0, k1 + 3 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 4 * w0, k1 + 4 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 5 * w0, k1 + 5 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 6 * w0, k1 + 6 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 7 * w0, k1 + 7 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 8 * w0, k1 + 8 * w1);
  detail::philox_round(c0, c1, c2, c3, k0 + 9 * w0, k1 + 9 * w1);
}

/// [0, 1) in steps of 2^-24.
CLEAVE_HD float uniform(uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; }

CLEAVE_HD uint64_t join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

/// [0, 1) in steps of 2^-53.
CLEAVE_HD double uniform(uint32_t low, uint32_t high) {
  return static_cast<double>(static_cast<int64_t>(join(low, high) >> 11)) * 0x1p-53;
}

/// Box-Muller from two uniforms.
CLEAVE_HD void normals(float u, float v, float& first, float& second) {
  float r = sqrt(-2.0f * log(1.0f - u));
  float quarters = 4.0f * v + 12582912.0f;  // rounds; v has 24 bits, so the rest is exact
  int32_t q = static_cast<int32_t>(to_bits(quarters));
  float rest = (4.0f * v - (quarters - 12582912.0f)) * 1.57079633f;
  first = r * detail::sin_quadrant(rest, q + 1);
  second = r * detail::sin_quadrant(rest, q);
}
CLEAVE_HD void normals(double u, double v, double& first, double& second) {
  double r = sqrt(-2.0 * log(1.0 - u)), angle = 6.283185307179586477 * v;
  first = r * cos(angle);
  second = r * sin(angle);
}

}  // namespace cleave::math
