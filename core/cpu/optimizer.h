// Fused parameter updates on the CPU, in one pass. Computed in the dtype of the state (m, the buffer, else the
// parameter): f64, or f32; parameters and gradients may be of another floating dtype, and strided.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019) or, if not decoupled, with decay added to the
/// gradient: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr * (m / c1) / (sqrt(v / c2) + eps), c1 = 1-b1^t, c2 =
/// 1-b2^t; decoupled: w *= 1 - lr*decay first.
struct AdamStep {
  double lr, beta1, beta2, eps, decay, correction1, correction2;
  bool decoupled;
};
/// `rounded`, if not null, becomes a copy of the updated parameter in its own dtype.
void adam(const View& param, const View& grad, const View& m, const View& v, const AdamStep& step,
          const View* rounded = nullptr);

/// buf = momentum*buf + (1-dampening)*g (first step: buf = g); update = nesterov ? g + momentum*buf : buf; g has
/// decay*w added.
struct SgdStep {
  double lr, momentum, dampening, decay;
  bool nesterov, first;
};
/// `buffer` is null without momentum.
void sgd(const View& param, const View& grad, const View* buffer, const SgdStep& step);

/// g has decay*w added; sum += g^2; w -= lr * g / (sqrt(sum) + eps).
struct AdagradStep {
  double lr, eps, decay;
};
void adagrad(const View& param, const View& grad, const View& sum, const AdagradStep& step);

/// g has decay*w added; square = alpha*square + (1-alpha) g^2; centered: mean likewise of g, and d = square - mean^2,
/// else d = square; move = g / (sqrt(d) + eps), with momentum: buffer = momentum*buffer + move in its place; w -= lr *
/// move.
struct RmsPropStep {
  double lr, alpha, eps, decay, momentum;
  bool centered;
};
/// `mean` is null unless centered, `buffer` without momentum.
void rmsprop(const View& param, const View& grad, const View& square, const View* mean, const View* buffer,
             const RmsPropStep& step);

/// w *= 1 - lr*decay; w -= lr * sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g.
struct LionStep {
  double lr, beta1, beta2, decay;
};
void lion(const View& param, const View& grad, const View& m, const LionStep& step);

/// direction = grad * row * column, which have size 1 in the last dim and in the one before it: Adafactor's step from
/// the inverse roots of its factors.
void factored_direction(const View& grad, const View& row, const View& column, const View& direction);

/// a += share * (x - a), in the dtype of a.
struct AverageStep {
  double share;
};
void average(const View& a, const View& x, const AverageStep& step);

/// Adam's step before it is scaled, for those that look at its length first: m and v as in `adam`, step = (m / c1) /
/// (sqrt(v / c2) + eps) + decay*w. Only `correction1`, `correction2`, betas, eps and decay of the options count.
void adam_direction(const View& param, const View& grad, const View& m, const View& v, const View& direction,
                    const AdamStep& step);

}  // namespace cleave::cpu
