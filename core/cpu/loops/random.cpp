#include <cleave/core/cpu/loops/random.h>
#include <cleave/core/math/random.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

__extension__ typedef unsigned __int128 uint128;

void words(uint64_t seed, uint64_t call, uint64_t first, int64_t counters, uint32_t* __restrict to) {
  for (int64_t i = 0; i < counters; ++i) {
    uint64_t counter = first + static_cast<uint64_t>(i);
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2, c3;
    math::philox(seed, call, c0, c1, c2, c3);
    to[4 * i] = c0;
    to[4 * i + 1] = c1;
    to[4 * i + 2] = c2;
    to[4 * i + 3] = c3;
  }
}

[[gnu::always_inline]] inline float uniform_at(const uint32_t* words, int64_t i, float) {
  return math::uniform(words[i]);
}
[[gnu::always_inline]] inline double uniform_at(const uint32_t* words, int64_t i, double) {
  return math::uniform(words[2 * i], words[2 * i + 1]);
}

template <class T>
void uniform(const uint32_t* words, int64_t n, RandomScale scale, T* __restrict to) {
  T low = static_cast<T>(scale.low), range = static_cast<T>(scale.range), most = static_cast<T>(scale.most);
  for (int64_t i = 0; i < n; ++i) {
    T v = low + uniform_at(words, i, T{}) * range;
    to[i] = v > most ? most : v;
  }
}

template <class T>
void normal(const uint32_t* words, int64_t n, RandomScale scale, T* __restrict to) {
  T mean = static_cast<T>(scale.low), std = static_cast<T>(scale.range);
  for (int64_t j = 0; j < n / 2; ++j) {
    T first, second;
    math::normals(uniform_at(words, 2 * j, T{}), uniform_at(words, 2 * j + 1, T{}), first, second);
    to[2 * j] = mean + first * std;
    to[2 * j + 1] = mean + second * std;
  }
}

void integers(const uint32_t* words, int64_t n, int64_t low, uint64_t range, int64_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    auto scaled = static_cast<uint128>(math::join(words[2 * i], words[2 * i + 1])) * range;
    to[i] = math::add(low, static_cast<int64_t>(static_cast<uint64_t>(scaled >> 64)));
  }
}

template <class T>
void dropout(const uint32_t* words, int64_t n, uint32_t threshold, double scale, const T* x, T* to) {
  T s = static_cast<T>(scale);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = (words[i] >> 8) < threshold ? T(0) : x[i] * s;
}

}  // namespace

constinit const RandomLoops random_loops = {words,          uniform<float>, uniform<double>, normal<float>,
                                            normal<double>, integers,       dropout<float>,  dropout<double>};

}  // namespace cleave::cpu::CLEAVE_ISA
