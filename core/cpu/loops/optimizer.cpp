#include <cleave/core/cpu/loops/optimizer.h>
#include <cleave/core/math/arithmetic.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

template <class T>
void adam(const void* const* in, void* const* out, int64_t n, const AdamStep& s) {
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]);
  const T *m = static_cast<const T*>(in[2]), *v = static_cast<const T*>(in[3]);
  T *w_out = static_cast<T*>(out[0]), *m_out = static_cast<T*>(out[1]), *v_out = static_cast<T*>(out[2]);
  T a1 = static_cast<T>(1 - s.beta1), a2 = static_cast<T>(1 - s.beta2);
  T rate = static_cast<T>(s.lr / s.correction1), root = static_cast<T>(1 / __builtin_sqrt(s.correction2));
  T eps = static_cast<T>(s.eps), added = static_cast<T>(s.decoupled ? 0 : s.decay);
  T kept = static_cast<T>(s.decoupled ? 1 - s.lr * s.decay : 1);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T gi = g[i] + added * w[i];
    T mi = m[i] + a1 * (gi - m[i]);
    T vi = v[i] + a2 * (gi * gi - v[i]);
    w_out[i] = kept * w[i] - rate * mi / (math::sqrt(vi) * root + eps);
    m_out[i] = mi;
    v_out[i] = vi;
  }
}

template <class T>
void sgd(const void* const* in, void* const* out, int64_t n, const SgdStep& s, bool buffer) {
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]);
  T* w_out = static_cast<T*>(out[0]);
  T lr = static_cast<T>(s.lr), decay = static_cast<T>(s.decay);
  if (!buffer) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) w_out[i] = w[i] - lr * (g[i] + decay * w[i]);
    return;
  }
  const T* b = static_cast<const T*>(in[2]);
  T* b_out = static_cast<T*>(out[1]);
  T momentum = static_cast<T>(s.momentum), damped = static_cast<T>(s.first ? 1 : 1 - s.dampening);
  T ahead = static_cast<T>(s.nesterov ? s.momentum : 1), direct = static_cast<T>(s.nesterov ? 1 : 0);
  bool first = s.first;  // the buffer may hold anything then
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T gi = g[i] + decay * w[i];
    T bi = (first ? T(0) : momentum * b[i]) + damped * gi;
    w_out[i] = w[i] - lr * (direct * gi + ahead * bi);
    b_out[i] = bi;
  }
}

template <class T>
void adagrad(const void* const* in, void* const* out, int64_t n, const AdagradStep& step) {
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]), *s = static_cast<const T*>(in[2]);
  T *w_out = static_cast<T*>(out[0]), *s_out = static_cast<T*>(out[1]);
  T lr = static_cast<T>(step.lr), eps = static_cast<T>(step.eps), decay = static_cast<T>(step.decay);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T gi = g[i] + decay * w[i];
    T si = s[i] + gi * gi;
    w_out[i] = w[i] - lr * gi / (math::sqrt(si) + eps);
    s_out[i] = si;
  }
}

template <class T, bool kCentered, bool kMomentum>
void rmsprop_as(const void* const* in, void* const* out, int64_t n, const RmsPropStep& step) {
  constexpr int kBuffer = kCentered ? 4 : 3;  // among the inputs
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]), *v = static_cast<const T*>(in[2]);
  const T* mean = kCentered ? static_cast<const T*>(in[3]) : nullptr;
  const T* buffer = kMomentum ? static_cast<const T*>(in[kBuffer]) : nullptr;
  T *w_out = static_cast<T*>(out[0]), *v_out = static_cast<T*>(out[1]);
  T* mean_out = kCentered ? static_cast<T*>(out[2]) : nullptr;
  T* buffer_out = kMomentum ? static_cast<T*>(out[kBuffer - 1]) : nullptr;
  T lr = static_cast<T>(step.lr), eps = static_cast<T>(step.eps), decay = static_cast<T>(step.decay);
  T kept = static_cast<T>(step.alpha), added = static_cast<T>(1 - step.alpha);
  T momentum = static_cast<T>(step.momentum);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T gi = g[i] + decay * w[i];
    T vi = kept * v[i] + added * gi * gi;
    T spread = vi;
    if constexpr (kCentered) {
      T mi = mean[i] + added * (gi - mean[i]);
      spread = vi - mi * mi;
      mean_out[i] = mi;
    }
    T move = gi / (math::sqrt(spread) + eps);
    if constexpr (kMomentum) {
      move = momentum * buffer[i] + move;
      buffer_out[i] = move;
    }
    w_out[i] = w[i] - lr * move;
    v_out[i] = vi;
  }
}

template <class T>
void rmsprop(const void* const* in, void* const* out, int64_t n, const RmsPropStep& step) {
  bool momentum = step.momentum != 0;
  auto run = step.centered ? (momentum ? rmsprop_as<T, true, true> : rmsprop_as<T, true, false>)
                           : (momentum ? rmsprop_as<T, false, true> : rmsprop_as<T, false, false>);
  run(in, out, n, step);
}

template <class T>
void lion(const void* const* in, void* const* out, int64_t n, const LionStep& step) {
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]), *m = static_cast<const T*>(in[2]);
  T *w_out = static_cast<T*>(out[0]), *m_out = static_cast<T*>(out[1]);
  T lr = static_cast<T>(step.lr), kept = static_cast<T>(1 - step.lr * step.decay);
  T b1 = static_cast<T>(step.beta1), a1 = static_cast<T>(1 - step.beta1);
  T b2 = static_cast<T>(step.beta2), a2 = static_cast<T>(1 - step.beta2);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T c = b1 * m[i] + a1 * g[i];
    T sign = c != c ? c : static_cast<T>(c > 0) - static_cast<T>(c < 0);  // NaN stays seen
    w_out[i] = kept * w[i] - lr * sign;
    m_out[i] = b2 * m[i] + a2 * g[i];
  }
}

template <class T>
void average(const void* const* in, void* const* out, int64_t n, const AverageStep& step) {
  const T *a = static_cast<const T*>(in[0]), *x = static_cast<const T*>(in[1]);
  T *to = static_cast<T*>(out[0]), share = static_cast<T>(step.share);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = a[i] + share * (x[i] - a[i]);
}

template <class T>
void adam_direction(const void* const* in, void* const* out, int64_t n, const AdamStep& s) {
  const T *w = static_cast<const T*>(in[0]), *g = static_cast<const T*>(in[1]);
  const T *m = static_cast<const T*>(in[2]), *v = static_cast<const T*>(in[3]);
  T *to = static_cast<T*>(out[0]), *m_out = static_cast<T*>(out[1]), *v_out = static_cast<T*>(out[2]);
  T a1 = static_cast<T>(1 - s.beta1), a2 = static_cast<T>(1 - s.beta2);
  T rate = static_cast<T>(1 / s.correction1), root = static_cast<T>(1 / __builtin_sqrt(s.correction2));
  T eps = static_cast<T>(s.eps), decay = static_cast<T>(s.decay);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T mi = m[i] + a1 * (g[i] - m[i]);
    T vi = v[i] + a2 * (g[i] * g[i] - v[i]);
    to[i] = rate * mi / (math::sqrt(vi) * root + eps) + decay * w[i];
    m_out[i] = mi;
    v_out[i] = vi;
  }
}

template <class T>
void factored_direction(const void* const* in, void* const* out, int64_t n) {
  const T *g = static_cast<const T*>(in[0]), *row = static_cast<const T*>(in[1]),
          *column = static_cast<const T*>(in[2]);
  T* to = static_cast<T*>(out[0]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = g[i] * row[i] * column[i];
}

}  // namespace

constinit const OptimizerLoops optimizer_loops = {adam<float>,
                                                  adam<double>,
                                                  sgd<float>,
                                                  sgd<double>,
                                                  adagrad<float>,
                                                  adagrad<double>,
                                                  rmsprop<float>,
                                                  rmsprop<double>,
                                                  lion<float>,
                                                  lion<double>,
                                                  average<float>,
                                                  average<double>,
                                                  adam_direction<float>,
                                                  adam_direction<double>,
                                                  factored_direction<float>,
                                                  factored_direction<double>};

}  // namespace cleave::cpu::CLEAVE_ISA
