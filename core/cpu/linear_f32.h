// A linear layer whose bias is added inside the product.
#pragma once
#include <cstdint>

namespace cleave::cpu {

/// out[m, n] = x[m, k] w[n, k]^T + bias[n], dense row-major f32. False if there is no such product here. Needs positive
/// sizes.
bool linear_f32(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, float* out);

}  // namespace cleave::cpu
