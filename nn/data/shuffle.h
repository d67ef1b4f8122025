// Shuffle: a random order of n things that needs no list of them.
#pragma once
#include <cstdint>

namespace cleave::nn {

/// A pseudo-random permutation of 0, ..., n - 1, chosen by (seed, epoch): any position in constant time and memory, the
/// same on every machine. A Feistel network of eight rounds over the smallest even number of bits that hold n, its
/// round function Philox, and a walk along its cycle until the result is below n (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002): fewer than four steps on average.
class Shuffle {
 public:
  /// Throws ValueError unless 0 <= n <= 2^62.
  Shuffle(int64_t n, uint64_t seed, int64_t epoch);
  int64_t size() const { return n_; }
  /// The thing at `position`, 0 <= position < size(); throws ValueError elsewhere.
  int64_t operator[](int64_t position) const;

 private:
  uint64_t encrypt(uint64_t x) const;
  int64_t n_;
  uint64_t seed_, call_;
  int half_ = 1;  // bits
};

}  // namespace cleave::nn
