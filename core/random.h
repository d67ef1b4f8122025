// Random numbers by position: Philox4x32-10 (Salmon et al. 2011), keyed by (seed, call, global element index).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <cleave/core/shape.h>

namespace cleave {

/// Restarts this rank's stream: the same seed on every rank gives the same numbers under every layout.
void seed(uint64_t value);
/// This rank's stream as a text to be saved, "seed 7 call 42": the same on all ranks, whatever the mesh or the layouts.
/// A program that draws from several streams keeps them apart by explicit seeds, which have no state.
std::string rng_state();
/// Goes on from such a text. Throws ValueError for any other.
void set_rng_state(std::string_view text);

namespace detail {

/// Identifies one random tensor.
struct RandomKey {
  uint64_t seed = 0, call = 0;
};
/// The key of the next random op or parameter on this rank; advances the call counter.
RandomKey next_random_key();
/// The current state, to be compared across ranks or restored.
RandomKey random_state();
void set_random_state(RandomKey state);

/// Where a block lies in its global tensor: its first index by dim, and the global sizes.
struct BlockOrigin {
  Shape global;
  Shape offset;
};

struct Philox4 {
  uint32_t v[4];
};

/// The ten rounds for one counter.
inline Philox4 philox(RandomKey key, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(key.call), c3 = static_cast<uint32_t>(key.call >> 32);
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace detail
}  // namespace cleave
