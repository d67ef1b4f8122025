// Parameter updates over dense blocks of f32 or f64.
#pragma once
#include <cleave/core/cpu/loops/convert.h>
#include <cleave/core/cpu/optimizer.h>

namespace cleave::cpu {

/// Outputs may be the inputs of the same meaning.
struct OptimizerLoops {
  /// in: param, grad, m, v; out: param, m, v.
  void (*adam_f32)(const void* const* in, void* const* out, int64_t n, const AdamStep& step);
  void (*adam_f64)(const void* const* in, void* const* out, int64_t n, const AdamStep& step);
  /// in: param, grad, and buffer if there is one; out: param, and buffer.
  void (*sgd_f32)(const void* const* in, void* const* out, int64_t n, const SgdStep& step, bool buffer);
  void (*sgd_f64)(const void* const* in, void* const* out, int64_t n, const SgdStep& step, bool buffer);
  /// in: param, grad, sum; out: param, sum.
  void (*adagrad_f32)(const void* const* in, void* const* out, int64_t n, const AdagradStep& step);
  void (*adagrad_f64)(const void* const* in, void* const* out, int64_t n, const AdagradStep& step);
  /// in: param, grad, mean square, and if there are: mean, buffer; out: the same without grad.
  void (*rmsprop_f32)(const void* const* in, void* const* out, int64_t n, const RmsPropStep& step);
  void (*rmsprop_f64)(const void* const* in, void* const* out, int64_t n, const RmsPropStep& step);
  /// in: param, grad, m; out: param, m.
  void (*lion_f32)(const void* const* in, void* const* out, int64_t n, const LionStep& step);
  void (*lion_f64)(const void* const* in, void* const* out, int64_t n, const LionStep& step);
  /// in: average, value; out: average.
  void (*average_f32)(const void* const* in, void* const* out, int64_t n, const AverageStep& step);
  void (*average_f64)(const void* const* in, void* const* out, int64_t n, const AverageStep& step);
  /// in: param, grad, m, v; out: direction, m, v.
  void (*adam_direction_f32)(const void* const* in, void* const* out, int64_t n, const AdamStep& step);
  void (*adam_direction_f64)(const void* const* in, void* const* out, int64_t n, const AdamStep& step);
  /// in: grad, row, column; out: their product.
  void (*factored_direction_f32)(const void* const* in, void* const* out, int64_t n);
  void (*factored_direction_f64)(const void* const* in, void* const* out, int64_t n);
};

CLEAVE_EACH_ISA(extern const OptimizerLoops optimizer_loops)

}  // namespace cleave::cpu
