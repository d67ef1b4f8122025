// Blocked softmax attention on the CPU (FlashAttention, Dao 2022/2023), from small matrix products.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// The part of a global attention that a block of q heads and q positions sees. Query head h (local) reads key head
/// (first_q_head + h) / group - first_kv_head.
struct AttentionBlock {
  double scale = 1;
  bool causal = false;  ///< key j is seen by query i if j <= i + (Tk - Tq), global numbers
  int64_t group = 1;    ///< q heads per k/v head
  int64_t first_q_head = 0, first_kv_head = 0;
  int64_t first_batch = 0;      ///< of the first batch entry (flattened leading dims, global) for the dropout mask
  int64_t first_query = 0;      ///< global position of local query 0
  int64_t queries = 0;          ///< global number of queries Tq
  int64_t heads = 0;            ///< global number of q heads
  double dropout = 0;           ///< probability of dropping a weight; kept ones are scaled by 1/(1-p)
  uint64_t seed = 0, call = 0;  ///< Philox key; element index ((batch*heads + head)*Tq + query)*Tk + key, all global
};

/// q [B, H, Tq, D], k [B, Hkv, Tk, D], v [B, Hkv, Tk, Dv], out [B, H, Tq, Dv], any strides; lse [B, H, Tq] dense, f32
/// (f64 for f64): log-sum-exp of the scaled scores, -inf where nothing is seen (out is 0 there). Memory is linear in T.
/// mask: null, or bool [B or 1, H or 1, Tq, Tk] (true = seen) or additive of q's dtype; strides may be 0.
void attention(const View& q, const View& k, const View& v, const View* mask, const AttentionBlock& block,
               const View& out, const View& lse);
/// Gradients dq, dk, dv (dense); recomputes the weights block by block. Sums over a group's heads in head order.
void attention_backward(const View& q, const View& k, const View& v, const View* mask, const AttentionBlock& block,
                        const View& out, const View& lse, const View& dout, const View& dq, const View& dk,
                        const View& dv);

}  // namespace cleave::cpu
