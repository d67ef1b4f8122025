// Self-attention with several heads, and fewer key and value heads where asked.
#pragma once
#include <optional>

#include <cleave/nn/layers.h>
#include <cleave/ops/rope.h>

namespace cleave::nn {

struct MultiHeadAttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;  ///< 0: as many as heads; else a divisor of heads (Ainslie et al. 2023)
  int64_t head_dim = 0;  ///< 0: dim / heads
  bool causal = false;
  bool bias = true;
  double dropout = 0.0;                            ///< on the attention weights, while training
  std::optional<RopeOptions> rope = std::nullopt;  ///< rotate queries and keys
};
/// x[B, T, dim] -> [B, T, dim]. Projections are split by heads as they are: `qkv` with weight [3, H, D, dim] if all
/// have as many heads, else `q` [H, D, dim] and `kv` [2, Hkv, D, dim]; `out` contracts [H, D]. A tensor-parallel plan
/// names
/// "-, tp, -, -" for qkv.weight, "tp, -, -" for q.weight, "-, tp, -" for out.weight.
class MultiHeadAttention : public Module<MultiHeadAttention> {
 public:
  /// Throws ValueError for sizes that do not divide.
  MultiHeadAttention(ModuleBase* parent, std::string name, int64_t dim, const MultiHeadAttentionOptions& options);
  static constexpr std::array inputs{"x", "mask"};
  /// `mask` as in scaled_dot_product_attention.
  Tensor forward(const Tensor& x, const Tensor& mask = {}) const;

  const MultiHeadAttentionOptions options;
  std::optional<Linear> qkv, q, kv;
  Linear out;
};

}  // namespace cleave::nn
