#include <cleave/dist/mesh_state.h>
#include <cleave/ops/op.h>

#include <algorithm>

namespace cleave {

std::string op_message(const char* op, const std::string& text) {
  std::string out = "[";
  return out.append(op).append("] ").append(text);
}

int64_t wrap_dim(const char* op, int64_t dim, const TensorType& type) {
  int64_t rank = type.shape.rank(), d = dim < 0 ? dim + rank : dim;
  if (d < 0 || d >= rank)
    throw ShapeError(op_message(op, "dim " + std::to_string(dim) + " is out of range for " + describe(type) +
                                        "; it has dims 0 to " + std::to_string(rank - 1)));
  return d;
}

Dims wrap_dims(const char* op, const Dims& dims, const TensorType& type) {
  Dims out;
  if (dims.empty()) {
    for (int d = 0; d < type.shape.rank(); ++d) out.push_back(d);
    return out;
  }
  for (int64_t dim : dims) {
    int64_t d = wrap_dim(op, dim, type);
    if (out.contains(d))
      throw ShapeError(op_message(op, "dim " + std::to_string(dim) + " is named twice in " + to_string(dims)));
    out.push_back(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void require_floating(const char* op, const Tensor& x, const char* what) {
  if (!is_floating(x.dtype()))
    throw DTypeError(
        op_message(op, std::string(what) + " is " + describe(x.type()) + " and must be floating; cast it first"));
}

Shape broadcast_shapes(const char* op, const Tensor& a, const Tensor& b) {
  const Shape &x = a.shape(), &y = b.shape();
  if (x == y) return x;
  Shape out;
  int rank = std::max(x.rank(), y.rank());
  out.resize(rank);
  for (int i = 1; i <= rank; ++i) {
    int64_t m = i <= x.rank() ? x[x.rank() - i] : 1, n = i <= y.rank() ? y[y.rank() - i] : 1;
    if (m != n && m != 1 && n != 1)
      throw ShapeError(op_message(op, describe(a.type()) + " and " + describe(b.type()) +
                                          " do not broadcast: aligned from the last dim, sizes " + std::to_string(m) +
                                          " and " + std::to_string(n) + " differ and neither is 1"));
    out[rank - i] = m == 1 ? n : m;
  }
  return out;
}

void lay_out(View& view, const Dims& order) {
  int64_t step = 1;
  for (int i = order.rank() - 1; i >= 0; --i) {
    view.strides[order[i]] = step;
    step *= std::max<int64_t>(view.shape[order[i]], 1);
  }
}

namespace {

// Dims from the largest stride to the smallest.
Dims order_of(const View& x) {
  Dims order;
  for (int d = 0; d < x.rank(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return x.strides[a] > x.strides[b]; });
  return order;
}

}  // namespace

Tensor make_like(const Tensor& x, DType dtype) {
  Tensor out = detail::make_tensor(x.impl()->view.shape, dtype, x.device());
  lay_out(out.impl()->view, order_of(x.impl()->view));
  return out;
}

Tensor gradient_room(const Tensor& x, DType dtype) {
  const View& view = x.impl()->view;
  View dense = view;
  lay_out(dense, order_of(view));
  bool fills = true;  // no gaps, and no element at two positions
  for (int d = 0; d < view.rank(); ++d) fills = fills && (view.shape[d] == 1 || view.strides[d] == dense.strides[d]);
  return fills && x.dtype() == dtype && detail::is_unique(x) ? x : make_like(x, dtype);
}

Tensor run_kernel(const Kernel& kernel, const char* op, std::initializer_list<const Tensor*> in, const Shape& shape,
                  DType dtype, Attributes attributes) {
  std::array<const View*, 16> views;
  size_t n = 0;
  Device device = Device::Cpu;
  for (const Tensor* x : in) {
    if (x && x->defined()) device = x->impl()->device;
    views[n++] = x && x->defined() ? &detail::elements(*x) : nullptr;
  }
  Tensor out = detail::make_tensor(shape, dtype, device);
  const View* result[] = {&out.impl()->view};
  launch(kernel, device, op, {{views.data(), n}, result, attributes});
  return out;
}

namespace {
Shape offset_of(const Shape& global, const dist::LayoutData* layout) {
  return layout ? dist::local_box(global, *layout).offset : Shape(global.rank(), 0);
}
}  // namespace

Shape LocalizeCall::in_offset(size_t i) const { return offset_of(in[i]->impl()->global, in_layouts[i]); }
Shape LocalizeCall::out_offset(size_t i) const { return offset_of(out[i].shape, out_layouts[i]); }

}  // namespace cleave
