// Random words and what is made of them, over dense blocks.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// Uniform numbers are low + u * range, at most `most`; normal ones low + z * range.
struct RandomScale {
  double low, range, most;
};

struct RandomLoops {
  /// The words of counters `first` on, four each.
  void (*words)(uint64_t seed, uint64_t call, uint64_t first, int64_t counters, uint32_t* to);
  // n elements of f32 from n words, of f64 and i64 from 2n; n is even for the normal ones.
  void (*uniform_f32)(const uint32_t* words, int64_t n, RandomScale scale, float* to);
  void (*uniform_f64)(const uint32_t* words, int64_t n, RandomScale scale, double* to);
  void (*normal_f32)(const uint32_t* words, int64_t n, RandomScale scale, float* to);
  void (*normal_f64)(const uint32_t* words, int64_t n, RandomScale scale, double* to);
  void (*integers)(const uint32_t* words, int64_t n, int64_t low, uint64_t range, int64_t* to);
  /// to = x * scale where the word's upper 24 bits are not below `threshold`, else 0.
  void (*dropout_f32)(const uint32_t* words, int64_t n, uint32_t threshold, double scale, const float* x, float* to);
  void (*dropout_f64)(const uint32_t* words, int64_t n, uint32_t threshold, double scale, const double* x, double* to);
};

CLEAVE_EACH_ISA(extern const RandomLoops random_loops)

}  // namespace cleave::cpu
