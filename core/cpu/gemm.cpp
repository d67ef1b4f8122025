// One product of two matrices. f32: oneDNN, else BLAS, else our own loops. f64: our own, because oneDNN has none, and
// OpenBLAS falls back to SSE2 kernels on a CPU newer than itself and has one pool of threads for all ranks.
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/gemm.h>
#include <cleave/core/cpu/matmul.h>
#include <cleave/core/cpu/workspace.h>
#include <cleave/core/parallel.h>

#include <algorithm>
#include <string>

#if CLEAVE_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#elif CLEAVE_WITH_BLAS
#include <cblas.h>
#endif

namespace cleave::cpu {
namespace {

template <class T>
void scale_rows(int64_t m, int64_t n, T beta, T* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? T(0) : beta * c[i * ldc + j];
}

// Rows are cut in blocks of the loops' own, so threads change no bits.
template <class T>
void own_gemm(void (*run)(const Product<T>&, T*), int64_t workspace, const Product<T>& whole) {
  constexpr int64_t kRows = 96;
  int64_t blocks = (whole.m + kRows - 1) / kRows;
  int64_t work = std::max<int64_t>(1, kRows * whole.n * whole.k);
  parallel_for(blocks, std::max<int64_t>(1, 1'000'000 / work), [&](int64_t begin, int64_t end) {
    Workspace<T, 1> memory(workspace);
    Product<T> part = whole;
    part.a.data += begin * kRows * whole.a.row;
    part.c += begin * kRows * whole.ldc;
    part.m = std::min(end * kRows, whole.m) - begin * kRows;
    run(part, memory.data());
  });
}

template <class T>
Product<T> describe(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
                    const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  return {m,    n, k,  alpha, {a, trans_a ? 1 : lda, trans_a ? lda : 1}, {b, trans_b ? 1 : ldb, trans_b ? ldb : 1},
          beta, c, ldc};
}

}  // namespace

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) return scale_rows(m, n, beta, c, ldc);
#if CLEAVE_WITH_ONEDNN
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#elif CLEAVE_WITH_BLAS
  auto i = [](int64_t x) { return static_cast<int>(x); };
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, i(m), i(n), i(k),
              alpha, a, i(lda), b, i(ldb), beta, c, i(ldc));
#else
  const GemmLoops& loops = CLEAVE_PICK(gemm_loops);
  own_gemm(loops.f32, loops.workspace, describe(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
#endif
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) return scale_rows(m, n, beta, c, ldc);
  const GemmLoops& loops = CLEAVE_PICK(gemm_loops);
  own_gemm(loops.f64, loops.workspace, describe(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
}

const char* matmul_backend() {
  static const std::string text = [] {
#if CLEAVE_WITH_ONEDNN
    const dnnl_version_t* v = dnnl_version();
    std::string version = std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
    return "oneDNN " + version + " (f32, bf16), own loops (f64)";
#elif CLEAVE_WITH_BLAS
    return std::string("BLAS (f32), own loops (f64)");
#else
    return std::string("own loops (f32, f64)");
#endif
  }();
  return text.c_str();
}

}  // namespace cleave::cpu
