// Matrix products on the CPU: f32 by oneDNN, else BLAS, else our own loops; f64 by our own loops.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// Row-major C[m,n] = alpha * op(A) op(B) + beta * C, op = transpose where asked; ld* in elements. f32 or f64. Zero
/// sizes are legal: with k = 0 C becomes beta * C. beta = 0 never reads C.
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

/// out[..., m, n] = a[..., m, k] @ b[..., k, n]: batch dims of a and b broadcast to out's (aligning last dims); any
/// strides (transposed operands are passed to the library as such, others are copied once); every dtype: integers
/// exactly in i64, halves accumulated in f32. out is dense. A batch whose b is shared and whose a rows are dense is one
/// product.
void matmul(const View& a, const View& b, const View& out);

/// The bytes of copies that `matmul` makes; data is not looked at.
int64_t matmul_scratch(const View& a, const View& b, const View& out);

/// out[M, N] = x[M, K] @ w[N, K]^T + bias[N] (bias may be null); all dense 2-D after flattening by the caller.
void linear(const View& x, const View& w, const View* bias, const View& out);

/// The bytes of copies that `linear` makes; data is not looked at.
int64_t linear_scratch(const View& x, const View& w, const View* bias, const View& out);

/// "oneDNN 2.6.3 (f32, bf16), own loops (f64)": what runs here.
const char* matmul_backend();

}  // namespace cleave::cpu
