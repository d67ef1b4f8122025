// The element-wise functions over dense blocks, by compute type.
#pragma once
#include <cleave/core/cpu/loops/convert.h>
#include <cleave/core/pointwise.h>

namespace cleave::cpu {

/// Inputs and output have the compute type; the output may be an input.
using BlockFn = void (*)(const void* const* in, void* out, int64_t n, PointwiseParams params);

/// fn[function][Compute]; null where a function does not exist for integers, or is in another table.
struct FunctionLoops {
  BlockFn fn[static_cast<int>(Pointwise::count_)][kComputeTypes];
};

// clang-format off
CLEAVE_EACH_ISA(extern const FunctionLoops unary_loops)
CLEAVE_EACH_ISA(extern const FunctionLoops binary_loops)
CLEAVE_EACH_ISA(extern const FunctionLoops gradient_loops)
// clang-format on

}  // namespace cleave::cpu
