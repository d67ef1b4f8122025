// Products of bf16 matrices in bf16, where the CPU gains by it.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/matrix.h>

namespace cleave::cpu {

/// Whether bf16 products run on matrix or dot-product units faster than in f32: with AMX, or on a CPU other than Intel
/// with AVX-512 bf16 (Intel cores without AMX run the dot products at half the rate of f32).
bool has_fast_bf16();

/// C[m, n] = A[m, k] B[k, n] of bf16 matrices, dense row-major, in f32 or bf16, summed in f32; `bias` (n elements of
/// C's dtype) may be null. False if there is no such product here. Needs positive sizes.
bool gemm_bf16(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const void* bias, bool out_bf16,
               void* c);

}  // namespace cleave::cpu
