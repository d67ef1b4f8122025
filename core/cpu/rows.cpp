// Softmax, its logarithm and logsumexp along any dim.
#include <cleave/core/cpu/row_loops.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/rows.h>

namespace cleave::cpu {
namespace {

template <class T>
void softmax_rows(const View& x, int dim, bool log, const View& y) {
  int64_t n = x.shape[dim], most = panel_rows(n);
  Strides strides[] = {without(x.strides, dim), without(y.strides, dim)};
  RowPlan plan(without(x.shape, dim), strides);
  const RowLoops<T>& loops = row_loops(T{});
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x, x.strides[dim], n, most);
    RowWriter<T, 3> out(y, y.strides[dim], n, most);
    plan.walk(begin, end, most, [&](int64_t, int64_t count, const auto& base, const auto& step) {
      in.load(base[0], step[0], count);
      out.begin(base[1], step[1]);
      for (int64_t r = 0; r < count; ++r) loops.softmax(in.row(r), n, log, out.row(r));
      out.end(count);
    });
  });
}

template <class T>
void softmax_backward_rows(const View& y, const View& dy, int dim, bool log, const View& dx) {
  int64_t n = y.shape[dim], most = panel_rows(n);
  Strides strides[] = {without(y.strides, dim), without(dy.strides, dim), without(dx.strides, dim)};
  RowPlan plan(without(y.shape, dim), strides);
  const RowLoops<T>& loops = row_loops(T{});
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> result(y, y.strides[dim], n, most);
    RowReader<T, 3> cotangent(dy, dy.strides[dim], n, most);
    RowWriter<T, 4> out(dx, dx.strides[dim], n, most);
    plan.walk(begin, end, most, [&](int64_t, int64_t count, const auto& base, const auto& step) {
      result.load(base[0], step[0], count);
      cotangent.load(base[1], step[1], count);
      out.begin(base[2], step[2]);
      for (int64_t r = 0; r < count; ++r) loops.softmax_backward(result.row(r), cotangent.row(r), n, log, out.row(r));
      out.end(count);
    });
  });
}

template <class T>
void logsumexp_rows(const View& x, int dim, const View& y) {
  int64_t n = x.shape[dim], most = panel_rows(n);
  Strides strides[] = {without(x.strides, dim), without(y.strides, dim)};
  RowPlan plan(without(x.shape, dim), strides);
  const RowLoops<T>& loops = row_loops(T{});
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x, x.strides[dim], n, most);
    RowWriter<T, 3> out(y, 1, 1, most);
    plan.walk(begin, end, most, [&](int64_t, int64_t count, const auto& base, const auto& step) {
      in.load(base[0], step[0], count);
      out.begin(base[1], step[1]);
      for (int64_t r = 0; r < count; ++r) *out.row(r) = loops.logsumexp(in.row(r), n);
      out.end(count);
    });
  });
}

}  // namespace

void softmax(const View& x, int dim, bool log, const View& y) {
  if (x.numel() == 0) return;
  if (x.dtype == DType::f64)
    softmax_rows<double>(x, dim, log, y);
  else
    softmax_rows<float>(x, dim, log, y);
}

void softmax_backward(const View& y, const View& dy, int dim, bool log, const View& dx) {
  if (y.numel() == 0) return;
  if (y.dtype == DType::f64)
    softmax_backward_rows<double>(y, dy, dim, log, dx);
  else
    softmax_backward_rows<float>(y, dy, dim, log, dx);
}

void logsumexp(const View& x, int dim, const View& out) {
  if (out.numel() == 0) return;
  if (x.dtype == DType::f64)
    logsumexp_rows<double>(x, dim, out);
  else
    logsumexp_rows<float>(x, dim, out);
}

}  // namespace cleave::cpu
