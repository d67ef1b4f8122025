// In which precision the gradients of a model are summed and sent.
#pragma once
#include <cleave/autograd/gradient_precision.h>
#include <cleave/nn/module_base.h>

namespace cleave::nn {

using autograd::GradientPrecision;

/// Sets it for all parameters of `model`, sharded or not; it stays with them when they are sharded again. By default
/// terms of bf16 and f16 parameters are summed, kept and sent in f32, 4 bytes each. `{.keep = DType::bf16}` keeps 2;
/// `{.reduce = DType::bf16}` halves the traffic of a reduction. `dist::comm_counts()` tells in which dtype each
/// collective went. Throws DTypeError unless both are f32, bf16 or f16.
void set_gradient_precision(const ModuleBase& model, GradientPrecision precision);

}  // namespace cleave::nn
