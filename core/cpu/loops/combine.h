// Element-wise reductions of dense buffers into dense buffers, by dtype and operation.
#pragma once
#include <cleave/core/cpu/combine.h>
#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// Indexed by DType, then Combine. Sets the elements [begin, end) of `outs` buffers from those of `ins` buffers.
struct CombineLoops {
  using Run = void (*)(const void* const* in, int ins, void* const* out, int outs, int64_t begin, int64_t end);
  Run of[8][kCombines];
};

CLEAVE_EACH_ISA(extern const CombineLoops combine_loops)

}  // namespace cleave::cpu
