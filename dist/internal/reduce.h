// Element-wise reduction of buffers, the arithmetic of all_reduce and reduce_scatter.
#pragma once
#include <cstdint>
#include <span>

#include <cleave/core/dtype.h>
#include <cleave/dist/layout.h>

namespace cleave::dist::detail {

/// out[j][i] = op over k of in[k][i], in order of k, for every j and i in [begin, end). An output may be an input. The
/// halves are summed in f32; bool sums and maxima are "or", minima "and"; integers wrap; NaN wins maxima and minima.
void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                     int64_t begin, int64_t end);

}  // namespace cleave::dist::detail
