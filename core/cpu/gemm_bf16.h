// Products of bf16 matrices in bf16, where the CPU gains by it.
#pragma once
#include <cstdint>

namespace cleave::cpu {

/// A[m, k] or B[k, n]: row-major with leading stride `ld`, or the transpose of such a matrix.
struct Bf16Matrix {
  const void* data;
  int64_t ld;
  bool transposed;
};

/// Whether bf16 products run on matrix or dot-product units faster than in f32: with AMX, or on a CPU other than Intel
/// with AVX-512 bf16 (Intel cores without AMX run the dot products at half the rate of f32).
bool has_fast_bf16();

/// C[m, n] = A B, dense row-major, in f32 or bf16, summed in f32; `bias` (n elements of C's dtype) may be null. False
/// if there is no such product here. Needs positive sizes.
bool gemm_bf16(int64_t m, int64_t n, int64_t k, const Bf16Matrix& a, const Bf16Matrix& b, const void* bias,
               bool out_bf16, void* c);

}  // namespace cleave::cpu
