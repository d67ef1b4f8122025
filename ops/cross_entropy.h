// Cross-entropy of class logits.
#pragma once
#include <cstdint>
#include <string_view>

#include <cleave/core/tensor.h>

namespace cleave {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;          ///< rows with this target count nothing
  std::string_view reduction = "mean";  ///< over rows not ignored (of none: 0); or "sum", "none" (ignored rows give 0)
  double label_smoothing = 0.0;         ///< eps: target (1-eps) onehot + eps/V
  double z_loss = 0.0;                  ///< adds z * logsumexp^2 per row
};
/// -log softmax(x)[target] for logits x [N, V] or [B, V, ...] (classes in dim 1; [V] alone for one row) and i64 or i32
/// targets without that dim. Split classes: two small collectives forward (max; sums), none backward; logits are never
/// gathered. The mean divides by the global count of rows not ignored. Throws ShapeError, DTypeError, ValueError;
/// IndexError for a target outside [0, V) that is not ignore_index.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

/// How many targets are not `ignore_index`, over all ranks: an i64 scalar, R on every axis. Communicates if the targets
/// are split. The mean over several micro-batches is the sum of their `reduction = "sum"` losses over the sum of these
/// counts (and over 1 if that is 0); a mean of their means would weigh tokens unequally.
Tensor count_valid(const Tensor& target, int64_t ignore_index = -100);

}  // namespace cleave
