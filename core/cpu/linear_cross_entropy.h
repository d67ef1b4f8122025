// Cross-entropy of a product, by chunks of rows, on the CPU: the logits of one chunk exist at a time.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// terms[0, row] = logsumexp over the classes of x w^T, terms[1, row] = the logit of target - first if that class lies
/// in this block, else 0, terms[2, row] = the sum of the logits (left out when terms has 2 rows). x: [N, C], w: [V, C],
/// target: [N] of i64, terms: [2 or 3, N] of f32 (f64 for f64). `logits`: room for [rows of a chunk, V] in the dtype of
/// `terms`. All dense; sums in the dtype of `terms`.
void linear_cross_entropy(const View& x, const View& w, const View& target, int64_t first, const View& logits,
                          const View& terms);

/// The bytes that its products take; data is not looked at.
int64_t linear_cross_entropy_scratch(const View& x, const View& w, const View& logits);

/// dx (of x's dtype) and dw (of the dtype of `terms`), either null where not wanted, given `terms` and its gradient.
/// `halves`: room as `logits` in x's dtype, used where that is bf16 or f16; `rows`: room for [rows of a chunk, C] in
/// the dtype of `terms`, likewise.
void linear_cross_entropy_backward(const View& x, const View& w, const View& target, const View& terms,
                                   const View& dterms, int64_t first, const View& logits, const View& halves,
                                   const View& rows, const View* dx, const View* dw);
int64_t linear_cross_entropy_backward_scratch(const View& x, const View& w, const View& logits, const View& halves,
                                              const View* dx);

}  // namespace cleave::cpu
