// Layer norm and RMS norm.
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/row_loops.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/rows.h>
#include <cleave/core/cpu/scratch.h>

#include <memory>
#include <vector>

namespace cleave::cpu {
namespace {

// A view whose normalised dims are merged into one, the last; a dense copy where its strides do not allow that.
struct Merged {
  View view;
  std::unique_ptr<Scratch> owned;
  int64_t col() const { return view.strides.back(); }
};

bool merge(View& x, int dims) {
  int keep = x.rank() - dims;
  int64_t size = 1, step = 1;
  for (int d = x.rank() - 1; d >= keep; --d) {
    if (x.shape[d] == 1) continue;
    if (size == 1)
      step = x.strides[d];
    else if (size != 0 && x.strides[d] != step * size)
      return false;
    size *= x.shape[d];
  }
  x.shape.resize(keep);
  x.strides.resize(keep);
  x.shape.push_back(size);
  x.strides.push_back(step);
  return true;
}

Merged merged(const View& x, int dims, bool copied = true) {
  Merged out{x, nullptr};
  if (merge(out.view, dims)) return out;
  out.owned.reset(new Scratch(x.numel() * size_of(x.dtype)));
  out.view = View{out.owned->data(), x.dtype, x.shape, contiguous_strides(x.shape)};
  if (copied) copy(x, out.view);
  merge(out.view, dims);
  return out;
}

// The weight or bias as a dense row of T.
template <class T>
std::vector<T> dense_row(const View* x) {
  std::vector<T> out;
  if (!x) return out;
  out.resize(static_cast<size_t>(x->numel()));
  copy(*x, {out.data(), dtype_of<T>(), x->shape, contiguous_strides(x->shape)});
  return out;
}
template <class T>
const T* pointer(const std::vector<T>& row, const View* x) {
  return x ? row.data() : nullptr;
}

// What the two norms share; `mean` and `bias` are null for RMS.
template <class T>
void norm_rows(const View& x_in, const View* weight, const View* bias, int dims, double eps, const View& y_in,
               const View* mean, const View& rstd) {
  Merged x = merged(x_in, dims), y = merged(y_in, dims, false);
  int dim = x.view.rank() - 1;
  int64_t n = x.view.shape[dim], most = panel_rows(n);
  std::vector<T> w = dense_row<T>(weight), b = dense_row<T>(bias);
  Strides strides[] = {without(x.view.strides, dim), without(y.view.strides, dim)};
  RowPlan plan(without(x.view.shape, dim), strides);
  const RowLoops<T>& loops = row_loops(T{});
  T *means = mean ? mean->as<T>() : nullptr, *rstds = rstd.as<T>();
  parallel_for(plan.rows(), row_grain(n), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x.view, x.col(), n, most);
    RowWriter<T, 3> out(y.view, y.col(), n, most);
    plan.walk(begin, end, most, [&](int64_t first, int64_t count, const auto& base, const auto& step) {
      in.load(base[0], step[0], count);
      out.begin(base[1], step[1]);
      for (int64_t r = 0; r < count; ++r) {
        int64_t at = first + r;
        if (means)
          loops.layer_norm(in.row(r), pointer(w, weight), pointer(b, bias), n, static_cast<T>(eps), out.row(r),
                           means + at, rstds + at);
        else
          loops.rms_norm(in.row(r), pointer(w, weight), n, static_cast<T>(eps), out.row(r), rstds + at);
      }
      out.end(count);
    });
  });
  if (y.owned) copy({y.owned->data(), y_in.dtype, y_in.shape, contiguous_strides(y_in.shape)}, y_in);
}

struct NormGradients {
  const View *dx, *dweight, *dbias;
};

// Rows are cut in at most 64 chunks, by size alone; each sums its own dweight and dbias, added up in order.
template <class T>
void norm_rows_backward(const View& x_in, const View* weight, const View* mean, const View& rstd, const View& dy_in,
                        int dims, const NormGradients& grads) {
  Merged x = merged(x_in, dims), dy = merged(dy_in, dims);
  View dx_in = grads.dx ? *grads.dx : x_in;
  Merged dx = merged(dx_in, dims, false);
  int dim = x.view.rank() - 1;
  int64_t n = x.view.shape[dim], most = panel_rows(n);
  std::vector<T> w = dense_row<T>(weight);
  Strides strides[] = {without(x.view.strides, dim), without(dy.view.strides, dim), without(dx.view.strides, dim)};
  RowPlan plan(without(x.view.shape, dim), strides);
  int64_t chunk = std::max<int64_t>(64, (plan.rows() + 63) / 64), chunks = (plan.rows() + chunk - 1) / chunk;
  bool sums = grads.dweight || grads.dbias;
  std::vector<T> partial(sums ? static_cast<size_t>(chunks * 2 * n) : 0, T(0));
  const RowLoops<T>& loops = row_loops(T{});
  const T *means = mean ? mean->as<T>() : nullptr, *rstds = rstd.as<T>();

  parallel_for(chunks, std::max<int64_t>(1, row_grain(n) / chunk), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x.view, x.col(), n, most);
    RowReader<T, 3> cotangent(dy.view, dy.col(), n, most);
    RowWriter<T, 4> out(dx.view, dx.col(), n, most);
    for (int64_t c = begin; c < end; ++c) {
      T* dweight = grads.dweight ? partial.data() + 2 * c * n : nullptr;
      T* dbias = grads.dbias ? partial.data() + (2 * c + 1) * n : nullptr;
      int64_t last = std::min(plan.rows(), (c + 1) * chunk);
      plan.walk(c * chunk, last, most, [&](int64_t first, int64_t count, const auto& base, const auto& step) {
        in.load(base[0], step[0], count);
        cotangent.load(base[1], step[1], count);
        if (grads.dx) out.begin(base[2], step[2]);
        for (int64_t r = 0; r < count; ++r)
          loops.norm_backward(in.row(r), pointer(w, weight), means ? means + first + r : nullptr, rstds[first + r],
                              cotangent.row(r), n, grads.dx ? out.row(r) : nullptr, dweight, dbias);
        if (grads.dx) out.end(count);
      });
    }
  });

  if (dx.owned && grads.dx) copy({dx.owned->data(), dx_in.dtype, dx_in.shape, contiguous_strides(dx_in.shape)}, dx_in);
  auto merge_chunks = [&](const View* to, int64_t which) {
    if (!to) return;
    std::vector<T> sum(static_cast<size_t>(n), T(0));
    for (int64_t c = 0; c < chunks; ++c) loops.add(partial.data() + (2 * c + which) * n, n, sum.data());
    copy({sum.data(), dtype_of<T>(), to->shape, contiguous_strides(to->shape)}, *to);
  };
  merge_chunks(grads.dweight, 0);
  merge_chunks(grads.dbias, 1);
}

}  // namespace

int64_t norm_scratch(const View& x, int norm_dims) {
  View row = x;
  return merge(row, norm_dims) ? 0 : x.numel() * size_of(x.dtype);
}

void layer_norm(const View& x, const View* weight, const View* bias, int norm_dims, double eps, const View& y,
                const View& mean, const View& rstd) {
  if (x.dtype == DType::f64)
    norm_rows<double>(x, weight, bias, norm_dims, eps, y, &mean, rstd);
  else
    norm_rows<float>(x, weight, bias, norm_dims, eps, y, &mean, rstd);
}

void layer_norm_backward(const View& x, const View* weight, const View& mean, const View& rstd, const View& dy,
                         int norm_dims, const View* dx, const View* dweight, const View* dbias) {
  NormGradients grads{dx, dweight, dbias};
  if (x.dtype == DType::f64)
    norm_rows_backward<double>(x, weight, &mean, rstd, dy, norm_dims, grads);
  else
    norm_rows_backward<float>(x, weight, &mean, rstd, dy, norm_dims, grads);
}

void rms_norm(const View& x, const View* weight, int norm_dims, double eps, const View& y, const View& rstd) {
  if (x.dtype == DType::f64)
    norm_rows<double>(x, weight, nullptr, norm_dims, eps, y, nullptr, rstd);
  else
    norm_rows<float>(x, weight, nullptr, norm_dims, eps, y, nullptr, rstd);
}

void rms_norm_backward(const View& x, const View* weight, const View& rstd, const View& dy, int norm_dims,
                       const View* dx, const View* dweight) {
  NormGradients grads{dx, dweight, nullptr};
  if (x.dtype == DType::f64)
    norm_rows_backward<double>(x, weight, nullptr, rstd, dy, norm_dims, grads);
  else
    norm_rows_backward<float>(x, weight, nullptr, rstd, dy, norm_dims, grads);
}

}  // namespace cleave::cpu
