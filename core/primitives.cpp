#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/primitives.h>

namespace cleave::detail {

void copy_view(Device device, const View& src, const View& dst) {
  static constexpr Kernel kernel{
      .cpu = [](const KernelCall& c) { cpu::copy(*c.in[0], *c.out[0]); },
      .cpu_scratch = [](const KernelCall& c) { return cpu::copy_scratch(*c.in[0], *c.out[0]); }};
  const View *in[] = {&src}, *out[] = {&dst};
  launch(kernel, device, "copy", {.in = in, .out = out});
}

void fill_view(Device device, const View& dst, double value) {
  static constexpr Kernel kernel{.cpu = [](const KernelCall& c) { cpu::fill(*c.out[0], c.attributes.as<double>()); }};
  const View* out[] = {&dst};
  launch(kernel, device, "fill", {.in = {}, .out = out, .attributes = value});
}

void add_views(Device device, const View& a, const View& b, const View& out) {
  static constexpr Kernel kernel{
      .cpu = [](const KernelCall& c) { cpu::add(*c.in[0], *c.in[1], *c.out[0]); },
      .cpu_scratch = [](const KernelCall& c) { return cpu::pointwise_scratch(c.in, *c.out[0]); }};
  const View *in[] = {&a, &b}, *to[] = {&out};
  launch(kernel, device, "accumulate", {.in = in, .out = to});
}

void accumulate_view(Device device, const View& x, const View& acc) {
  static constexpr Kernel kernel{
      .cpu = [](const KernelCall& c) { cpu::accumulate(*c.in[0], *c.out[0]); },
      .cpu_scratch = [](const KernelCall& c) { return cpu::pointwise_scratch(c.in, *c.out[0]); }};
  const View *in[] = {&x}, *out[] = {&acc};
  launch(kernel, device, "accumulate", {.in = in, .out = out});
}

View sub_view(const View& view, const Shape& offset, const Shape& shape) {
  View out = view;
  out.shape = shape;
  int64_t shift = 0;
  for (int d = 0; d < shape.rank(); ++d) shift += offset[d] * view.strides[d];
  if (view.data) out.data = static_cast<char*>(view.data) + shift * size_of(view.dtype);
  return out;
}

Tensor dense(const Tensor& x) { return x.is_contiguous() ? x : dense_copy(x, x.dtype()); }

Tensor dense_copy(const Tensor& x, DType dtype) {
  const View& from = elements(x);
  Tensor out = make_tensor(from.shape, dtype, x.device());
  copy_view(x.device(), from, out.impl()->view);
  return out;
}

}  // namespace cleave::detail
