// Products in f32 of operands that a library product does not take as they lie.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/matrix.h>

namespace cleave::cpu {

/// C[m, n] = A[m, k] B[k, n] (+ bias[n] of `bias_type`, may be null), dense row-major; every dtype one of f32,
/// bf16 and f16; summed in f32. Operands are converted block by block, so that what the product reads and writes stays
/// in the cache.
void gemm_blocks(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const void* bias, DType bias_type,
                 DType type, void* c);

/// The bytes that it takes from the allocator; data is not looked at.
int64_t gemm_blocks_scratch(int64_t n, int64_t k, const Matrix& b, bool bias, DType bias_type);

/// Whether columns of a row-major f32 matrix with this leading stride share so few cache sets that a product with its
/// transpose, of `columns` rows, gains from `gemm_blocks`.
bool columns_collide(int64_t ld, int64_t columns);

}  // namespace cleave::cpu
