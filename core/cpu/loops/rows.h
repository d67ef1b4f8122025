// Loops over dense rows of n elements in f32 or f64, compiled once per instruction set.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

template <class T>
struct RowLoops {
  void (*softmax)(const T* x, int64_t n, bool log, T* y);
  void (*softmax_backward)(const T* y, const T* dy, int64_t n, bool log, T* dx);
  T (*logsumexp)(const T* x, int64_t n);
  /// `weight` and `bias` may be null. Writes the row's mean and rstd.
  void (*layer_norm)(const T* x, const T* weight, const T* bias, int64_t n, T eps, T* y, T* mean, T* rstd);
  void (*rms_norm)(const T* x, const T* weight, int64_t n, T eps, T* y, T* rstd);
  /// Any of dx, dweight, dbias may be null; the latter two are added to. `mean` null: the RMS norm's.
  void (*norm_backward)(const T* x, const T* weight, const T* mean, T rstd, const T* dy, int64_t n, T* dx, T* dweight,
                        T* dbias);
  /// terms[0] = sum(exp(x - shift)), terms[2] = sum(x) if `sum`.
  void (*cross_entropy)(const T* x, int64_t n, T shift, bool sum, T terms[3]);
  /// dx = scale * exp(x - shift) + add.
  void (*cross_entropy_backward)(const T* x, int64_t n, T shift, T scale, T add, T* dx);
  void (*add)(const T* x, int64_t n, T* sum);
};

// clang-format off
CLEAVE_EACH_ISA(extern const RowLoops<float> row_loops_f32)
CLEAVE_EACH_ISA(extern const RowLoops<double> row_loops_f64)
// clang-format on

}  // namespace cleave::cpu
