// Rotary position embedding.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

struct RopeOptions {
  double base = 10000.0;
  int64_t offset = 0;        ///< position of the first row
  bool interleaved = false;  ///< pairs (2i, 2i+1) instead of (i, i + D/2)
};
/// Rotates pairs of the last dim of x [..., T, D] by position * base^(-2i/D) (Su et al. 2021). D must be even.
Tensor rope(const Tensor& x, const RopeOptions& options = {});

}  // namespace cleave
