// Changes of dtype.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

/// x in another dtype (x itself if it has it). Floats truncate towards zero to integers; bool is `!= 0`. Differentiable
/// between floating dtypes.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace cleave
