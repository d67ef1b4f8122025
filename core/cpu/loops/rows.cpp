// Softmax, norms and the cross-entropy sums of one row. Rows go through the first-level cache in pieces, so that a row
// of any length costs one read from memory for each pass that needs all of it.
#include <cleave/core/cpu/loops/rows.h>
#include <cleave/core/cpu/loops/simd.h>
#include <cleave/core/math/exp_flush.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

constexpr int64_t kPiece = 512;

[[gnu::always_inline]] inline float sqrt1(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double sqrt1(double x) { return __builtin_sqrt(x); }

// Sum of exp(x - shift), in lanes for each piece; the pieces' sums are added in f64. `y`, if not null, receives the
// terms.
template <class T>
T sum_exp(const T* x, int64_t n, T shift, T* y) {
  constexpr int64_t L = kLanes<T>;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    int64_t end = n - begin < kPiece ? n : begin + kPiece, i = begin;
    T part[L] = {};
    for (; i + L <= end; i += L) {
      T e[L];
      for (int64_t c = 0; c < L; ++c) e[c] = math::exp_flush(x[i + c] - shift);
      for (int64_t c = 0; c < L; ++c) part[c] += e[c];
      if (y) __builtin_memcpy(y + i, e, sizeof e);
    }
    for (int64_t c = 0; i + c < end; ++c) {
      T e = math::exp_flush(x[i + c] - shift);
      part[c] += e;
      if (y) y[i + c] = e;
    }
    sum += static_cast<double>(total(part));
  }
  return static_cast<T>(sum);
}

template <class T>
void softmax(const T* x, int64_t n, bool log, T* y) {
  T shift = max_row(x, n);
  if (log) {
    T offset = shift + math::log(sum_exp<T>(x, n, shift, nullptr));
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - offset;
  } else {
    T scale = T(1) / sum_exp<T>(x, n, shift, y);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

template <class T>
void softmax_backward(const T* y, const T* dy, int64_t n, bool log, T* dx) {
  if (log) {
    T sum = sum_row(dy, n);
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp_flush(y[i]) * sum;
  } else {
    T sum = dot_row(dy, y, n);
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - sum);
  }
}

// An infinite largest element is the result, which x - shift would turn into NaN; a NaN among them still wins.
template <class T>
T logsumexp(const T* x, int64_t n) {
  T shift = max_row(x, n);
  if (shift - shift == 0) return shift + math::log(sum_exp<T>(x, n, shift, nullptr));
  for (int64_t i = 0; i < n; ++i) shift = x[i] != x[i] ? x[i] : shift;
  return shift;
}

template <class T>
void layer_norm(const T* x, const T* weight, const T* bias, int64_t n, T eps, T* y, T* mean_out, T* rstd_out) {
  T mean = sum_row(x, n) / static_cast<T>(n);
  Simd<T> means = mean + Simd<T>{};
  T square = sum_of<T>(
      n,
      [&](int64_t i, Simd<T>& sum) {
        Simd<T> d = load(x + i) - means;
        sum += d * d;
      },
      [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  T rstd = T(1) / sqrt1(square / static_cast<T>(n) + eps);
  *mean_out = mean;
  *rstd_out = rstd;
  if (weight && bias) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  } else if (weight) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
  } else if (bias) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd + bias[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
  }
}

template <class T>
void rms_norm(const T* x, const T* weight, int64_t n, T eps, T* y, T* rstd_out) {
  T rstd = T(1) / sqrt1(dot_row(x, x, n) / static_cast<T>(n) + eps);
  *rstd_out = rstd;
  if (weight) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * weight[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd;
  }
}

// With h = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - h * mean(g*h)), without mean(g) for RMS.
template <class T>
void norm_dx(const T* x, const T* weight, const T* mean_in, T rstd, const T* dy, int64_t n, T* dx) {
  T mean = mean_in ? *mean_in : T(0);
  Simd<T> means = mean + Simd<T>{};
  T along = sum_of<T>(
      n,
      [&](int64_t i, Simd<T>& sum) {
        if (weight)
          sum += load(dy + i) * load(weight + i) * (load(x + i) - means);
        else
          sum += load(dy + i) * (load(x + i) - means);
      },
      [&](int64_t i) { return (weight ? dy[i] * weight[i] : dy[i]) * (x[i] - mean); });
  T inv = T(1) / static_cast<T>(n);
  T slope = along * inv * rstd * rstd;
  T level = mean_in ? (weight ? dot_row(dy, weight, n) : sum_row(dy, n)) * inv : T(0);
  if (weight) {
    for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] * weight[i] - level - (x[i] - mean) * slope);
  } else {
    for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] - level - (x[i] - mean) * slope);
  }
}

template <class T>
void norm_backward(const T* x, const T* weight, const T* mean_in, T rstd, const T* dy, int64_t n, T* dx, T* dweight,
                   T* dbias) {
  T mean = mean_in ? *mean_in : T(0);
  if (dx) norm_dx(x, weight, mean_in, rstd, dy, n, dx);
  if (dweight && dbias) {
    for (int64_t i = 0; i < n; ++i) {
      dweight[i] += dy[i] * ((x[i] - mean) * rstd);
      dbias[i] += dy[i];
    }
  } else if (dweight) {
    for (int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  } else if (dbias) {
    for (int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
  }
}

template <class T>
void cross_entropy(const T* x, int64_t n, T shift, bool sum, T* terms) {
  terms[0] = sum_exp<T>(x, n, shift, nullptr);
  if (!sum) return;
  double all = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece)
    all += static_cast<double>(sum_row(x + begin, n - begin < kPiece ? n - begin : kPiece));
  terms[2] = static_cast<T>(all);
}

template <class T>
void cross_entropy_backward(const T* x, int64_t n, T shift, T scale, T add, T* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * math::exp_flush(x[i] - shift) + add;
}

template <class T>
void add(const T* x, int64_t n, T* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

template <class T>
constexpr RowLoops<T> table() {
  return {softmax<T>,       softmax_backward<T>,       logsumexp<T>, layer_norm<T>, rms_norm<T>, norm_backward<T>,
          cross_entropy<T>, cross_entropy_backward<T>, add<T>};
}

}  // namespace

const RowLoops<float> row_loops_f32 = table<float>();
const RowLoops<double> row_loops_f64 = table<double>();

}  // namespace cleave::cpu::CLEAVE_ISA
