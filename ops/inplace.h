// Writes into a tensor's own storage; every view sees them. The destination must not require grad while the tape
// records (GradError: use NoGrad, or the out-of-place op). Sources are brought to the destination's layout, which may
// communicate. A destination that is the memoised result of a redistribution throws LayoutError: nothing would see it.
#pragma once
#include <cleave/core/tensor.h>

namespace cleave {

void fill_(const Tensor& x, double value);
inline void zero_(const Tensor& x) { fill_(x, 0.0); }
/// x = source, converted to x's dtype; equal shapes.
void copy_(const Tensor& x, const Tensor& source);
/// x += alpha * y; equal shapes.
void add_(const Tensor& x, const Tensor& y, double alpha = 1.0);
/// x *= factor.
void mul_(const Tensor& x, double factor);

}  // namespace cleave
