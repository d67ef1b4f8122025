// Philox4x32-10 and what is made of its words. Element i of a tensor uses word i % 4 of counter i / 4; where it needs
// 64 bits, the words 2i (the low half) and 2i + 1 of the same numbering.
#pragma once
#include <cleave/core/math/activations.h>
#include <cleave/core/math/arithmetic.h>
#include <cleave/core/math/trig.h>

namespace cleave::math {

struct Words {
  uint32_t v[4];
};

namespace detail {
CLEAVE_HD void philox_round(Words& c, uint32_t k0, uint32_t k1) {
  uint64_t a = uint64_t{0xD2511F53u} * c.v[0], b = uint64_t{0xCD9E8D57u} * c.v[2];
  c = {{static_cast<uint32_t>(b >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(a)}};
}
}  // namespace detail

/// The same as philox() of core/random.h, unrolled so that loops over counters vectorise.
CLEAVE_HD Words philox(uint64_t seed, uint64_t call, uint64_t counter) {
  constexpr uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  Words c{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(call),
           static_cast<uint32_t>(call >> 32)}};
  detail::philox_round(c, k0, k1);
  detail::philox_round(c, k0 + w0, k1 + w1);
  detail::philox_round(c, k0 + 2 * w0, k1 + 2 * w1);
  detail::philox_round(c, k0 + 3 * w0, k1 + 3 * w1);
  detail::philox_round(c, k0 + 4 * w0, k1 + 4 * w1);
  detail::philox_round(c, k0 + 5 * w0, k1 + 5 * w1);
  detail::philox_round(c, k0 + 6 * w0, k1 + 6 * w1);
  detail::philox_round(c, k0 + 7 * w0, k1 + 7 * w1);
  detail::philox_round(c, k0 + 8 * w0, k1 + 8 * w1);
  detail::philox_round(c, k0 + 9 * w0, k1 + 9 * w1);
  return c;
}

/// [0, 1) in steps of 2^-24.
CLEAVE_HD float uniform(uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; }

CLEAVE_HD uint64_t join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

/// [0, 1) in steps of 2^-53.
CLEAVE_HD double uniform(uint32_t low, uint32_t high) {
  return static_cast<double>(static_cast<int64_t>(join(low, high) >> 11)) * 0x1p-53;
}

template <class T>
struct NormalPair {
  T first, second;
};

/// Box-Muller from two uniforms.
CLEAVE_HD NormalPair<float> normals(float u, float v) {
  float r = sqrt(-2.0f * log(1.0f - u));
  float quarters = 4.0f * v + 12582912.0f;  // rounds; v has 24 bits, so the rest is exact
  int32_t q = static_cast<int32_t>(to_bits(quarters));
  float rest = (4.0f * v - (quarters - 12582912.0f)) * 1.57079633f;
  return {r * detail::sin_quadrant(rest, q + 1), r * detail::sin_quadrant(rest, q)};
}
CLEAVE_HD NormalPair<double> normals(double u, double v) {
  double r = sqrt(-2.0 * log(1.0 - u)), angle = 6.283185307179586477 * v;
  return {r * cos(angle), r * sin(angle)};
}

}  // namespace cleave::math
