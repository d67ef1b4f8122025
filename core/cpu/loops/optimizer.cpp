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

}  // namespace

constinit const OptimizerLoops optimizer_loops = {adam<float>, adam<double>, sgd<float>, sgd<double>};

}  // namespace cleave::cpu::CLEAVE_ISA
