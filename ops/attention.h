// Scaled dot-product attention.
#pragma once
#include <optional>

#include <cleave/core/tensor.h>

namespace cleave {

struct AttentionOptions {
  Tensor mask = {};                            ///< bool (true: seen) or additive, broadcastable to [B, H, Tq, Tk]
  double dropout_p = 0.0;                      ///< on the weights
  bool is_causal = false;                      ///< query i sees keys j <= i + Tk - Tq
  std::optional<double> scale = std::nullopt;  ///< default 1 / sqrt(D)
};
/// softmax(q k^T * scale) v for q [..., H, Tq, D], k [..., Hkv, Tk, D], v [..., Hkv, Tk, Dv], one or no leading dim;
/// H must be a multiple of Hkv (grouped heads: q head h reads k/v head h / (H/Hkv)). Blocked: memory is linear in T.
/// Splits over batch, heads (k and v may stay whole), and query positions run locally.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace cleave
