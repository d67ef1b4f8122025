#include <cleave/autograd/redistribute.h>
#include <cleave/core/cpu/random.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/ambient.h>
#include <cleave/dist/internal/checks.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/op.h>

#include <algorithm>
#include <cmath>

namespace cleave {
namespace {

using detail::BlockOrigin;
using detail::RandomKey;

struct Fresh {
  Tensor tensor;
  BlockOrigin origin;
};

// The layout asked for, or R on the ambient mesh, or none.
const dist::LayoutData* layout_of(const Shape& shape, const TensorOptions& options) {
  if (options.layout.defined()) return options.layout.resolve(shape.rank()).data();
  const dist::MeshState* ambient = dist::ambient_mesh();
  return ambient ? dist::DeviceMesh(ambient).replicated(shape.rank()).data() : nullptr;
}

Fresh fresh(const char* op, const Shape& shape, DType dtype, const TensorOptions& options) {
  for (int64_t n : shape)
    if (n < 0) throw ShapeError(op_message(op, "a size is negative in " + to_string(shape)));
  const dist::LayoutData* layout = layout_of(shape, options);
  if (!layout) return {detail::make_tensor(shape, dtype, options.device), {shape, Shape(shape.rank(), 0)}};
  dist::Box box = dist::local_box(shape, *layout);
  bool absent = !layout->mesh->member();
  Shape block = absent ? Shape(shape.rank(), 0) : box.shape;
  return {detail::make_tensor(shape, block, dtype, options.device, layout, absent), {shape, box.offset}};
}

// A partial tensor's first rank holds the value, the others hold zeros.
bool holds_value(const Tensor& x) {
  const dist::LayoutData* layout = x.impl()->layout;
  return !layout || layout->mesh->is_first(layout->partial);
}

template <class Attributes>
Tensor filled(Fresh f, const char* op, const Kernel& kernel, const Attributes& attributes) {
  detail::TensorImpl& impl = *f.tensor.impl();
  if (!holds_value(f.tensor)) {
    detail::fill_view(impl.device, impl.view, 0.0);
    return f.tensor;
  }
  const View* out[] = {&impl.view};
  launch(kernel, impl.device, op, {.in = {}, .out = out, .attributes = attributes});
  return f.tensor;
}

Tensor filled_with(const char* op, const Shape& shape, double value, const TensorOptions& options) {
  Fresh f = fresh(op, shape, options.dtype.value_or(DType::f32), options);
  detail::TensorImpl& impl = *f.tensor.impl();
  detail::fill_view(impl.device, impl.view, holds_value(f.tensor) ? value : 0.0);
  return f.tensor;
}

TensorOptions like(const Tensor& x) {
  TensorOptions o{.dtype = x.dtype(), .device = x.impl()->absent ? Device::Cpu : x.device()};
  if (x.is_distributed()) {
    dist::LayoutData content = *x.impl()->layout;
    content.partial = 0;
    o.layout = dist::Layout(content.mesh->intern(content));
  }
  return o;
}

struct Sequence {
  int64_t start, step;
};
void arange_kernel(const KernelCall& c) {
  const Sequence& s = c.attributes.as<Sequence>();
  int64_t n = c.out[0]->numel();
  visit_dtype(c.out[0]->dtype, [&]<class T>(T) {
    T* out = c.out[0]->as<T>();
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>)
        out[i] = static_cast<T>(s.start + i * s.step);
      else
        out[i] = static_cast<T>(static_cast<float>(s.start + i * s.step));
      if constexpr (std::is_same_v<T, double>) out[i] = static_cast<double>(s.start + i * s.step);
    }
  });
}

struct RandomAttributes {
  BlockOrigin origin;
  RandomKey key;
  double a, b;
};
constexpr Kernel uniform_kernel{.cpu = [](const KernelCall& c) {
  const auto& r = c.attributes.as<RandomAttributes>();
  cpu::uniform(*c.out[0], r.origin, r.key, r.a, r.b);
}};
constexpr Kernel normal_kernel{.cpu = [](const KernelCall& c) {
  const auto& r = c.attributes.as<RandomAttributes>();
  cpu::normal(*c.out[0], r.origin, r.key, r.a, r.b);
}};
struct IntegerAttributes {
  BlockOrigin origin;
  RandomKey key;
  int64_t low, high;
};

void diagonal_kernel(const KernelCall& c) {
  const BlockOrigin& o = c.attributes.as<BlockOrigin>();
  const View& v = *c.out[0];
  visit_dtype(v.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < v.shape[0]; ++i)
      for (int64_t j = 0; j < v.shape[1]; ++j)
        v.as<T>()[i * v.strides[0] + j * v.strides[1]] = T(o.offset[0] + i == o.offset[1] + j ? 1.0f : 0.0f);
  });
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return fresh("empty", shape, options.dtype.value_or(DType::f32), options).tensor;
}
Tensor zeros(const Shape& shape, const TensorOptions& options) { return filled_with("zeros", shape, 0.0, options); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return filled_with("ones", shape, 1.0, options); }
Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  return filled_with("full", shape, value, options);
}
Tensor full_like(const Tensor& x, double value) {
  dist::UseMesh plain(nullptr);
  return filled_with("full_like", x.shape(), value, like(x));
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0.0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1.0); }

Tensor arange(int64_t end, const TensorOptions& options) { return arange(0, end, 1, options); }
Tensor arange(int64_t start, int64_t end, int64_t step, const TensorOptions& options) {
  if (step == 0) throw ValueError(op_message("arange", "step is 0; it must be positive or negative"));
  int64_t n = std::max<int64_t>(0, (end - start + step - (step > 0 ? 1 : -1)) / step);
  Fresh f = fresh("arange", Shape{n}, options.dtype.value_or(DType::i64), options);
  static constexpr Kernel kernel{.cpu = arange_kernel};
  return filled(f, "arange", kernel, Sequence{start + f.origin.offset[0] * step, step});
}

Tensor eye(int64_t n, const TensorOptions& options) {
  Fresh f = fresh("eye", Shape{n, n}, options.dtype.value_or(DType::f32), options);
  static constexpr Kernel kernel{.cpu = diagonal_kernel};
  BlockOrigin origin = f.origin;
  return filled(f, "eye", kernel, origin);
}

RandomKey detail::random_key(const TensorOptions& options) {
  return options.seed ? RandomKey{*options.seed, 0} : next_random_key();
}

Tensor detail::random_tensor(RandomKind kind, const Shape& shape, const TensorOptions& options, RandomKey key, double a,
                             double b) {
  const char* op = kind == RandomKind::uniform ? "rand" : "randn";
  DType dtype = options.dtype.value_or(DType::f32);
  if (!is_floating(dtype))
    throw DTypeError(op_message(op, "cannot make " + std::string(to_string(dtype)) + "; use randint for integers"));
  Fresh f = fresh(op, shape, dtype, options);
  dist::detail::require_same_key(op, key, f.tensor.impl()->layout, f.tensor.device());
  RandomAttributes attributes{f.origin, key, a, b};
  return filled(f, op, kind == RandomKind::uniform ? uniform_kernel : normal_kernel, attributes);
}

Tensor rand(const Shape& shape, const TensorOptions& options) {
  return detail::random_tensor(detail::RandomKind::uniform, shape, options, detail::random_key(options), 0.0, 1.0);
}
Tensor randn(const Shape& shape, const TensorOptions& options) {
  return detail::random_tensor(detail::RandomKind::normal, shape, options, detail::random_key(options), 0.0, 1.0);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options) {
  if (high <= low)
    throw ValueError(
        op_message("randint", "the range [" + std::to_string(low) + ", " + std::to_string(high) + ") is empty"));
  RandomKey key = detail::random_key(options);
  Fresh f = fresh("randint", shape, options.dtype.value_or(DType::i64), options);
  dist::detail::require_same_key("randint", key, f.tensor.impl()->layout, f.tensor.device());
  static constexpr Kernel kernel{.cpu = [](const KernelCall& c) {
    const auto& r = c.attributes.as<IntegerAttributes>();
    cpu::random_integers(*c.out[0], r.origin, r.key, r.low, r.high);
  }};
  IntegerAttributes attributes{f.origin, key, low, high};
  return filled(f, "randint", kernel, attributes);
}

Tensor detail::from_host(const void* data, DType from, size_t count, const Shape& shape, const TensorOptions& options) {
  if (static_cast<int64_t>(count) != numel(shape))
    throw ShapeError(op_message("tensor", std::to_string(count) + " values do not fill " + to_string(shape)));
  View host{const_cast<void*>(data), from, shape, contiguous_strides(shape)};
  Tensor whole = make_tensor(shape, options.dtype.value_or(from), options.device);
  copy_view(whole.device(), host, whole.impl()->view);
  const dist::LayoutData* layout = layout_of(shape, options);
  return layout ? dist::distribute(whole, dist::Layout(layout)) : whole;
}

}  // namespace cleave
