// The sums over a block of classes from which cross-entropy is made, and their gradient.
#include <cleave/core/cpu/row_loops.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/rows.h>

namespace cleave::cpu {
namespace {

int64_t index_at(const View& x, int64_t offset) {
  return x.dtype == DType::i64 ? x.as<int64_t>()[offset] : x.as<int32_t>()[offset];
}

// One number per row, of any floating dtype.
template <class T>
T value_at(const View& x, int64_t offset) {
  switch (x.dtype) {
    case DType::f64:
      return static_cast<T>(x.as<double>()[offset]);
    case DType::f32:
      return static_cast<T>(x.as<float>()[offset]);
    case DType::bf16:
      return static_cast<T>(static_cast<float>(x.as<BFloat16>()[offset]));
    default:
      return static_cast<T>(static_cast<float>(x.as<Half>()[offset]));
  }
}

// A tensor [2 or 3, rows...]: the stride of its first dim is left to the caller.
Strides term_strides(const View& terms) { return without(terms.strides, 0); }

template <class T>
void terms_of_rows(const View& x, const View& shift, const View& target, int dim, int64_t first_class,
                   const View& terms) {
  int64_t n = x.shape[dim], most = panel_rows(n), next = terms.strides[0];
  Strides strides[] = {without(x.strides, dim), without(shift.strides, dim), target.strides, term_strides(terms)};
  RowPlan plan(without(x.shape, dim), strides);
  bool with_sum = terms.shape[0] > 2;
  const RowLoops<T>& loops = row_loops(T{});
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x, x.strides[dim], n, most);
    plan.walk(begin, end, most, [&](int64_t, int64_t count, const auto& base, const auto& step) {
      in.load(base[0], step[0], count);
      for (int64_t r = 0; r < count; ++r) {
        T sums[3] = {};
        loops.cross_entropy(in.row(r), n, value_at<T>(shift, base[1] + r * step[1]), with_sum, sums);
        int64_t at = index_at(target, base[2] + r * step[2]) - first_class;
        T* out = terms.as<T>() + base[3] + r * step[3];
        out[0] = sums[0];
        out[next] = at >= 0 && at < n ? in.row(r)[at] : T(0);
        if (with_sum) out[2 * next] = sums[2];
      }
    });
  });
}

template <class T>
void terms_of_rows_backward(const View& x, const View& shift, const View& target, const View& dterms, int dim,
                            int64_t first_class, const View& dx) {
  int64_t n = x.shape[dim], most = panel_rows(n), next = dterms.strides[0];
  Strides strides[] = {without(x.strides, dim), without(shift.strides, dim), target.strides, term_strides(dterms),
                       without(dx.strides, dim)};
  RowPlan plan(without(x.shape, dim), strides);
  bool with_sum = dterms.shape[0] > 2;
  const RowLoops<T>& loops = row_loops(T{});
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x, x.strides[dim], n, most);
    RowWriter<T, 3> out(dx, dx.strides[dim], n, most);
    plan.walk(begin, end, most, [&](int64_t, int64_t count, const auto& base, const auto& step) {
      in.load(base[0], step[0], count);
      out.begin(base[4], step[4]);
      for (int64_t r = 0; r < count; ++r) {
        const T* g = dterms.as<T>() + base[3] + r * step[3];
        loops.cross_entropy_backward(in.row(r), n, value_at<T>(shift, base[1] + r * step[1]), g[0],
                                     with_sum ? g[2 * next] : T(0), out.row(r));
        int64_t at = index_at(target, base[2] + r * step[2]) - first_class;
        if (at >= 0 && at < n) out.row(r)[at] += g[next];
      }
      out.end(count);
    });
  });
}

}  // namespace

void cross_entropy_terms(const View& x, const View& shift, const View& target, int dim, int64_t first,
                         const View& terms) {
  if (x.dtype == DType::f64)
    terms_of_rows<double>(x, shift, target, dim, first, terms);
  else
    terms_of_rows<float>(x, shift, target, dim, first, terms);
}

void cross_entropy_terms_backward(const View& x, const View& shift, const View& target, const View& dterms, int dim,
                                  int64_t first, const View& dx) {
  if (x.dtype == DType::f64)
    terms_of_rows_backward<double>(x, shift, target, dterms, dim, first, dx);
  else
    terms_of_rows_backward<float>(x, shift, target, dterms, dim, first, dx);
}

}  // namespace cleave::cpu
