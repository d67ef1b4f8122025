// Cross-entropy of a linear head whose logits never exist whole.
#pragma once
#include <cleave/ops/cross_entropy.h>

namespace cleave {

/// Those of CrossEntropyOptions, and `chunk`.
struct LinearCrossEntropyOptions {
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  int64_t chunk = 0;  ///< rows (tokens) whose logits exist at a time; 0: as many as make 4 Mi logits, at least 16
};
/// cross_entropy(x weight^T, target) for hidden states x [..., C], a head weight [V, C] of the same floating dtype, and
/// i64 or i32 targets [...]: value and gradients are those of the two ops, but logits are computed by chunks of rows,
/// in f32 for the halves, and again in backward, so that memory does not grow with rows times V. What is kept for
/// backward is x, weight, and two or three numbers per row. The loss is f32 (f64 for f64).
///
/// Rows may be split over any axes, and V over others: two small collectives forward (max; sums), none backward; the
/// gradient of x is then partial over the axes of V, that of the weight over those of the rows. C is made whole. Throws
/// as `cross_entropy` does, and ValueError for a negative chunk.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace cleave
