// Copies that optimizers and averages keep of parameters.
#pragma once
#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::optim::detail {

/// In which updates of a parameter are computed and its state is kept.
inline DType working(DType t) { return is_half(t) ? DType::f32 : t; }
/// A tensor of its own with x's type and elements, in another dtype.
Tensor own_copy(const Tensor& x, DType dtype);
/// x under another layout, also of another mesh; null: plain. A plain x is a value that all ranks hold. Communicates.
Tensor in_layout(const Tensor& x, const dist::LayoutData* to);

}  // namespace cleave::optim::detail
