// softmax and its logarithm.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// exp(x - max) / sum(exp(x - max)) along dim, in f32 for the halves. Over a split dim: two small collectives forward,
/// one backward.
Tensor softmax(const Tensor& x, int64_t dim);
/// x - logsumexp(x) along dim.
Tensor log_softmax(const Tensor& x, int64_t dim);

}  // namespace cleave
