// Dropout.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// x with each element zeroed with probability p and the others scaled by 1/(1-p); x itself if not training or p = 0.
/// The mask depends on (seed, call, global element index): the same under every layout. Throws ValueError unless 0 <= p
/// <= 1.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace cleave
