// What happens to a block of attention scores between the matrix products, compiled once per instruction set.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// A mask over a block: nothing, bool (true = seen), or numbers to add.
struct MaskBlock {
  const void* data = nullptr;
  int dtype = 0;  // of DType: f64, f32, bf16, f16 or boolean
  int64_t row = 0, col = 0;
};

/// Which weights are dropped: Philox with 4 words per counter, element (r, c) has the index first + r * row + c.
struct DropBlock {
  uint64_t seed = 0, call = 0, first = 0, row = 0;
  uint64_t threshold = 0;  // words below it are dropped; 0: dropout is off
  double scale = 1;        // of those kept
};

/// Scores of `rows` queries and `cols` keys. Row r sees its first clamp(seen + r * seen_step, 0, cols) keys.
template <class T>
struct ScoreBlock {
  T* scores;
  T *high, *shrink;  // of `rows` elements: room to work in
  int64_t ld, rows, cols, seen, seen_step;
  MaskBlock mask;
  DropBlock drop;
};

template <class T>
struct AttentionLoops {
  /// Scores become exp(score - top), with top and sum brought up to date and the rows of acc[rows, width] rescaled.
  void (*forward)(const ScoreBlock<T>& block, T* top, T* sum, T* acc, int64_t width);
  /// acc /= sum; sum becomes the log-sum-exp. Rows without a seen key: 0 and -inf.
  void (*finish)(int64_t rows, int64_t width, const T* top, T* sum, T* acc);
  /// Scores become weights after dropout, dweights (same ld) the gradient of the scores before scaling by `scale`.
  void (*backward)(const ScoreBlock<T>& block, const T* lse, const T* delta, T scale, T* dweights);
  /// delta[r] = sum(a[r] * b[r]).
  void (*dots)(int64_t rows, int64_t width, const T* a, int64_t lda, const T* b, int64_t ldb, T* delta);
};

// clang-format off
CLEAVE_EACH_ISA(extern const AttentionLoops<float> attention_loops_f32)
CLEAVE_EACH_ISA(extern const AttentionLoops<double> attention_loops_f64)
// clang-format on

}  // namespace cleave::cpu
