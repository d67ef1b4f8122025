// Gathers by index. Indices are i64 or i32 (DTypeError else) and are checked on the ranks that hold them (IndexError).
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// Rows of weight [V, ...] by ids [...]: [..., ...]. A split vocabulary gives a partial sum: each rank looks up the
/// rows it holds.
Tensor embedding(const Tensor& ids, const Tensor& weight);
/// x with `dim` indexed by the 1-D index.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// out[i][j] = x[index[i][j]][j] for dim 0, and so on; index's other sizes are at most x's.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);

}  // namespace cleave
