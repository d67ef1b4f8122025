// Matrix products compiled once per instruction set: for f64, for f32 where no library is there, and for integers.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// op(X) of a product: element (i, j) lies at data + i * row + j * col.
template <class T>
struct Factor {
  const T* data;
  int64_t row, col;
};

/// C[m, n] = alpha * A B + beta * C, C row-major. Needs k > 0; beta = 0 never reads C. The bits of an element do not
/// depend on m and n.
template <class T>
struct Product {
  int64_t m, n, k;
  T alpha;
  Factor<T> a, b;
  T beta;
  T* c;
  int64_t ldc;
};

struct GemmLoops {
  /// Elements of workspace that any product needs.
  int64_t workspace;
  void (*f32)(const Product<float>&, float* workspace);
  void (*f64)(const Product<double>&, double* workspace);
  /// C[m, n] = A[m, k] B[k, n], dense; overflow wraps.
  void (*i64)(int64_t m, int64_t n, int64_t k, const int64_t* a, const int64_t* b, int64_t* c);
};

// clang-format off
CLEAVE_EACH_ISA(extern const GemmLoops gemm_loops)
// clang-format on

}  // namespace cleave::cpu
