// What the generic harness checks of an op on one device.
#pragma once
#include "support/op_case.h"

namespace cleave::test {

/// Relative tolerance of results in a dtype, against f64.
double default_tolerance(DType dtype);

/// Values in every dtype against f64 of the same (rounded) inputs, dense, strided and expanded inputs, indices as i32,
/// types on Meta, and no element that was never written. Expects poisoned buffers off; leaves them off.
void check_values(const OpCase& c, Report& report);

/// Gradients of every differentiable input for all outputs together and each alone: f64 against central differences,
/// other dtypes and strided inputs and cotangents against f64.
void check_gradients(const OpCase& c, Report& report);

}  // namespace cleave::test
