// Turns the scalar functions of core/math into loops over blocks and a table of them.
#pragma once
#include <cleave/core/cpu/loops/functions.h>
#include <cleave/core/math/functions.h>
#include <cleave/core/math/trig.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

template <Pointwise F, class T>
[[gnu::always_inline]] inline math::Params<T> params_of(PointwiseParams params) {
  return {math::param<T>(params.p), math::param<T>(params.q)};
}

template <Pointwise F>
constexpr bool is_trig =
    F == Pointwise::sin || F == Pointwise::cos || F == Pointwise::sin_grad || F == Pointwise::cos_grad;

// Rare arguments that the f32 functions do not reduce well enough: the block is computed in f64.
template <Pointwise F>
bool huge_arguments(const float* x, const void* const* in, float* out, int64_t n) {
  int huge = 0;
  for (int64_t i = 0; i < n; ++i) huge |= x[i] > math::kTrigLimit || x[i] < -math::kTrigLimit;
  if (!huge) return false;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (math::Function<F>::arity == 1) {
      out[i] = static_cast<float>(math::Function<F>::of(math::Params<double>{}, static_cast<double>(x[i])));
    } else {
      double g = static_cast<double>(static_cast<const float*>(in[1])[i]);
      out[i] = static_cast<float>(math::Function<F>::of(math::Params<double>{}, static_cast<double>(x[i]), g));
    }
  }
  return true;
}

// `ivdep`: an output that is an input is read before it is written, element by element.
template <Pointwise F, class T>
void run(const void* const* in, void* out, int64_t n, PointwiseParams params) {
  using Fn = math::Function<F>;
  math::Params<T> p = params_of<F, T>(params);
  const T* a = static_cast<const T*>(in[0]);
  T* y = static_cast<T*>(out);
  if constexpr (is_trig<F> && sizeof(T) == 4)
    if (huge_arguments<F>(a, in, y, n)) return;
  if constexpr (Fn::arity == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Fn::of(p, a[i]);
  } else if constexpr (Fn::arity == 2) {
    const T* b = static_cast<const T*>(in[1]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Fn::of(p, a[i], b[i]);
  } else {
    const T *b = static_cast<const T*>(in[1]), *c = static_cast<const T*>(in[2]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Fn::of(p, a[i], b[i], c[i]);
  }
}

template <Pointwise F>
constexpr void enter(FunctionLoops& table) {
  BlockFn* row = table.fn[static_cast<int>(F)];
  row[static_cast<int>(Compute::f32)] = run<F, float>;
  row[static_cast<int>(Compute::f64)] = run<F, double>;
  if constexpr (math::Function<F>::group != math::Group::F) row[static_cast<int>(Compute::i64)] = run<F, int64_t>;
}

/// The functions First to Last.
template <Pointwise First, Pointwise Last>
constexpr void enter_all(FunctionLoops& table) {
  enter<First>(table);
  if constexpr (First != Last) enter_all<static_cast<Pointwise>(static_cast<int>(First) + 1), Last>(table);
}

template <Pointwise First, Pointwise Last>
constexpr FunctionLoops make_functions() {
  FunctionLoops table{};
  enter_all<First, Last>(table);
  return table;
}

}  // namespace
}  // namespace cleave::cpu::CLEAVE_ISA
