#include <cleave/core/cpu/linear_cross_entropy.h>
#include <cleave/core/cpu/matmul.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/rows.h>
#include <cleave/core/cpu/workspace.h>

#include <algorithm>

namespace cleave::cpu {
namespace {

/// Elements [begin, begin + n) along `dim`.
View part(View v, int dim, int64_t begin, int64_t n) {
  if (v.data) v.data = static_cast<char*>(v.data) + begin * v.strides[dim] * size_of(v.dtype);
  v.shape[dim] = n;
  return v;
}

View transposed(View v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

/// Row `t` of the terms as a column [N, 1].
View column(const View& terms, int64_t t) { return transposed(part(terms, 0, t, 1)); }

template <class F>
void for_chunks(int64_t rows, const View& logits, F f) {
  int64_t chunk = std::max<int64_t>(1, logits.shape[0]);
  for (int64_t begin = 0; begin < rows; begin += chunk) f(begin, std::min(chunk, rows - begin));
}

// dw += dlogits^T x, or dw = it the first time.
template <class T>
void add_product(const View& dlogits, const View& x, bool first, const View& dw) {
  int64_t v = dw.shape[0], c = dw.shape[1];
  gemm(true, false, v, c, x.shape[0], T(1), dlogits.as<T>(), std::max<int64_t>(v, 1), x.as<T>(),
       std::max<int64_t>(c, 1), first ? T(0) : T(1), dw.as<T>(), std::max<int64_t>(c, 1));
}

}  // namespace

void linear_cross_entropy(const View& x, const View& w, const View& target, int64_t first, const View& logits,
                          const View& terms) {
  for_chunks(x.shape[0], logits, [&](int64_t begin, int64_t n) {
    View l = part(logits, 0, 0, n), out = part(terms, 1, begin, n);
    matmul(part(x, 0, begin, n), transposed(w), l);
    Workspace<char, 7> memory(n * size_of(l.dtype));
    View lse{memory.data(), l.dtype, {n, 1}, {1, 1}};
    logsumexp(l, 1, lse);
    cross_entropy_terms(l, lse, part(target, 0, begin, n), 1, first,
                        out);  // row 0: the sums relative to lse, which are 1
    copy(lse, column(out, 0));
  });
}

int64_t linear_cross_entropy_scratch(const View& x, const View& w, const View& logits) {
  return matmul_scratch(part(x, 0, 0, logits.shape[0]), transposed(w), logits);
}

int64_t linear_cross_entropy_backward_scratch(const View& x, const View& w, const View& logits, const View& halves,
                                              const View* dx) {
  int64_t bytes = linear_cross_entropy_scratch(x, w, logits);
  if (!dx) return bytes;
  return std::max(bytes, matmul_scratch(is_half(x.dtype) ? halves : logits, w, part(*dx, 0, 0, logits.shape[0])));
}

void linear_cross_entropy_backward(const View& x, const View& w, const View& target, const View& terms,
                                   const View& dterms, int64_t first, const View& logits, const View& halves,
                                   const View& rows, const View* dx, const View* dw) {
  bool half = is_half(x.dtype);
  for_chunks(x.shape[0], logits, [&](int64_t begin, int64_t n) {
    View l = part(logits, 0, 0, n), xs = part(x, 0, begin, n), d = l;
    matmul(xs, transposed(w), l);
    cross_entropy_terms_backward(l, column(part(terms, 1, begin, n), 0), part(target, 0, begin, n),
                                 part(dterms, 1, begin, n), 1, first, l);
    if (dx) {
      if (half) copy(l, d = part(halves, 0, 0, n));
      matmul(d, w, part(*dx, 0, begin, n));
    }
    if (!dw) return;
    if (half) {
      copy(xs, part(rows, 0, 0, n));
      xs = part(rows, 0, 0, n);
    }
    if (l.dtype == DType::f64)
      add_product<double>(l, xs, begin == 0, *dw);
    else
      add_product<float>(l, xs, begin == 0, *dw);
  });
}

}  // namespace cleave::cpu
