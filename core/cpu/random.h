// Random fills on the CPU, by global element index: element i uses word i % 4 of philox(key, i / 4) (uniform f32 and
// the halves: top 24 bits; integers and f64: words (2i, 2i+1) of the same numbering, 64 bits, the first one low).
#pragma once
#include <cleave/core/random.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

/// Uniform in [low, high).
void uniform(const View& out, const detail::BlockOrigin& origin, detail::RandomKey key, double low, double high);
/// Box-Muller; the pair (2j, 2j+1) comes from the uniforms of the same indices.
void normal(const View& out, const detail::BlockOrigin& origin, detail::RandomKey key, double mean, double std);
/// Uniform integers in [low, high).
void random_integers(const View& out, const detail::BlockOrigin& origin, detail::RandomKey key, int64_t low,
                     int64_t high);
/// out = x kept with probability 1-p and scaled by 1/(1-p), else 0 (p = 1 gives zeros). The word of the element, as a
/// uniform in [0, 1), is compared with p. The gradient is the same call on the cotangent.
void dropout(const View& x, const detail::BlockOrigin& origin, detail::RandomKey key, double p, const View& out);

}  // namespace cleave::cpu
