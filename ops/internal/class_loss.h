// What the losses over classes share: the formula from three numbers per row.
#pragma once
#include <cleave/ops/cross_entropy.h>

namespace cleave::class_loss {

/// Throws ValueError for a reduction or a smoothing that does not exist.
void check(const char* op, const CrossEntropyOptions& options);
/// The loss of rows with these logsumexp, target logit and sum of logits (read only where labels are smoothed), all of
/// target's shape, reduced as the options say.
Tensor of_terms(const Tensor& lse, const Tensor& logit, const Tensor& total, int64_t classes, const Tensor& target,
                const CrossEntropyOptions& options);
/// x with its partial axes reduced, in one collective.
Tensor resolved(const Tensor& x, const char* op);

}  // namespace cleave::class_loss
