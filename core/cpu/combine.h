// Sums, maxima and minima of whole buffers, element by element: the arithmetic of reductions over ranks.
#pragma once
#include <cstdint>
#include <span>

#include <cleave/core/dtype.h>

namespace cleave::cpu {

enum class Combine : uint8_t { sum, max, min };
inline constexpr int kCombines = 3;

/// out[j][i] = combination over k of in[k][i], in order of k, for every j and i in [begin, end). An output may be an
/// input; outputs that are no inputs must not overlap them. The halves are combined in f32 and rounded once; integers
/// wrap; bool sums and maxima are "or", minima "and"; NaN wins maxima and minima. At least one input.
void combine(DType dtype, Combine op, std::span<const void* const> in, std::span<void* const> out, int64_t begin,
             int64_t end);

}  // namespace cleave::cpu
