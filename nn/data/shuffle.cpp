#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/nn/data/shuffle.h>

#include <string>

namespace cleave::nn {

namespace {
// The streams of random numbers that a seed gives are told apart by their call numbers; those of ops count from 0.
constexpr uint64_t kShuffleCalls = uint64_t{1} << 63;
constexpr int kRounds = 8;
}  // namespace

Shuffle::Shuffle(int64_t n, uint64_t seed, int64_t epoch)
    : n_(n), seed_(seed), call_(kShuffleCalls + static_cast<uint64_t>(epoch)) {
  if (n < 0 || n > (int64_t{1} << 62)) throw ValueError("a shuffle of " + std::to_string(n) + " things");
  while ((int64_t{1} << (2 * half_)) < n) ++half_;
}

uint64_t Shuffle::encrypt(uint64_t x) const {
  uint64_t mask = (uint64_t{1} << half_) - 1, left = x >> half_, right = x & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    uint64_t mixed = left ^ (detail::philox({seed_, call_}, round << 32 | right).v[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_ | right;
}

int64_t Shuffle::operator[](int64_t position) const {
  if (position < 0 || position >= n_)
    throw ValueError("position " + std::to_string(position) + " of a shuffle of " + std::to_string(n_) + " things");
  auto x = static_cast<uint64_t>(position);
  do x = encrypt(x);
  while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace cleave::nn
