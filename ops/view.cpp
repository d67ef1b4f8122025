// transpose, permute, expand, slice and what is made of them; reshape has a file of its own.
#include <cleave/core/primitives.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/op.h>
#include <cleave/ops/view.h>

#include <algorithm>

namespace cleave {
namespace ops {
namespace {

/// A list of dims or sizes as attributes.
struct ListAttributes {
  int64_t n = 0;
  int64_t v[kMaxDims] = {};
  explicit ListAttributes(const IntList& list = {}) : n(list.rank()) { std::copy(list.begin(), list.end(), v); }
};
struct SliceAttributes {
  int64_t dim, start, length, step;
};

Cost free_cost(std::span<const View* const>, std::span<const View* const>, const Attributes&) { return {}; }

void infer_permute(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<ListAttributes>();
  out[0] = {call.dtype(0), {}};
  for (int64_t i = 0; i < a.n; ++i) out[0].shape.push_back(call.shape(0)[a.v[i]]);
}
Rule permute_rule(const RuleCall& call) {
  const auto& a = call.attributes.as<ListAttributes>();
  Rule rule;
  rule.in = {plain_letters(static_cast<int>(a.n))};
  rule.out.emplace_back();
  for (int64_t i = 0; i < a.n; ++i) rule.out[0].push_back({dim_letter(a.v[i])});
  rule.linear = {1};
  return rule;
}
bool permute_view(const View& x, size_t, const Shape& out, const Attributes& attributes, View& result) {
  const auto& a = attributes.as<ListAttributes>();
  result = x;
  result.shape = out;
  for (int64_t i = 0; i < a.n; ++i) result.strides[i] = x.strides[a.v[i]];
  return true;
}
void permute_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<ListAttributes>();
  View v = c.grads[0].impl()->view;
  for (int64_t i = 0; i < a.n; ++i) {
    v.shape[a.v[i]] = c.grads[0].impl()->view.shape[i];
    v.strides[a.v[i]] = c.grads[0].impl()->view.strides[i];
  }
  out[0] = detail::make_view(c.grads[0], v, v.shape, nullptr);
}

void infer_expand(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<ListAttributes>();
  const Shape& x = call.shape(0);
  Shape shape;
  bool fits = a.n >= x.rank();
  for (int64_t i = 0; fits && i < a.n; ++i) {
    int64_t d = i - (a.n - x.rank()), size = a.v[i];
    if (size == -1 && d >= 0) size = x[d];
    fits = size >= 0 && (d < 0 || x[d] == size || x[d] == 1);
    shape.push_back(size);
  }
  if (!fits) {
    Shape wanted;
    for (int64_t i = 0; i < a.n; ++i) wanted.push_back(a.v[i]);
    throw ShapeError(op_message("expand", describe(call.in[0]->type()) + " does not expand to " + to_string(wanted) +
                                              ": only dims of size 1 repeat"));
  }
  out[0] = {call.dtype(0), shape};
}
Rule expand_rule(const RuleCall& call) {
  const Shape &x = call.in[0].shape, &y = call.out[0].shape;
  Rule rule;
  rule.out = {plain_letters(y.rank())};
  rule.in.emplace_back();
  for (int d = 0; d < x.rank(); ++d) {
    int at = d + y.rank() - x.rank();
    rule.in[0].push_back(x[d] == y[at] ? DimLetters{dim_letter(at)} : DimLetters{});
  }
  rule.linear = {1};
  return rule;
}
bool expand_view(const View& x, size_t, const Shape& out, const Attributes&, View& result) {
  result = x;
  result.shape = out;
  result.strides = Strides(out.rank(), 0);
  for (int d = 0; d < x.rank(); ++d) {
    int at = d + out.rank() - x.rank();
    result.strides[at] = x.shape[d] == out[at] ? x.strides[d] : 0;
  }
  return true;
}
void expand_backward(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = pointwise_op::unbroadcast(c, 0, c.grads[0]);
}

void infer_slice(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<SliceAttributes>();
  out[0] = {call.dtype(0), call.shape(0)};
  out[0].shape[a.dim] = a.length;
}
Rule slice_rule(const RuleCall& call) {
  const auto& a = call.attributes.as<SliceAttributes>();
  Rule rule;
  rule.in = {plain_letters(call.in[0].shape.rank())};
  rule.out = rule.in;
  rule.linear = {1};
  bool all = a.start == 0 && a.step == 1 && a.length == call.in[0].shape[a.dim];
  if (!all) rule.in[0][static_cast<size_t>(a.dim)] = rule.out[0][static_cast<size_t>(a.dim)] = {};
  return rule;
}
View sliced(const View& x, const SliceAttributes& a, int64_t length) {
  View v = x;
  v.shape[a.dim] = length;
  if (v.data) v.data = static_cast<char*>(v.data) + a.start * x.strides[a.dim] * size_of(x.dtype);
  v.strides[a.dim] = x.strides[a.dim] * a.step;
  return v;
}
bool slice_view(const View& x, size_t, const Shape& out, const Attributes& attributes, View& result) {
  const auto& a = attributes.as<SliceAttributes>();
  result = sliced(x, a, out[a.dim]);
  return true;
}
void slice_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<SliceAttributes>();
  const Tensor& g = c.grads[0];
  Tensor dx = detail::make_tensor(c.input_shape(0), c.input_dtype(0), g.device());
  detail::fill_view(dx.device(), dx.impl()->view, 0.0);
  detail::copy_view(g.device(), detail::elements(g), sliced(dx.impl()->view, a, g.impl()->view.shape[a.dim]));
  out[0] = dx;
}

struct UnbindAttributes {
  int64_t dim;
};
void infer_unbind(const InferCall& call, std::span<OutputType> out) {
  Shape shape = call.shape(0);
  shape.erase(call.attributes.as<UnbindAttributes>().dim);
  for (OutputType& o : out) o = {call.dtype(0), shape};
}
Rule unbind_rule(const RuleCall& call) {
  size_t dim = static_cast<size_t>(call.attributes.as<UnbindAttributes>().dim);
  OperandLetters x = plain_letters(call.in[0].shape.rank()), piece = x;
  x[dim] = {};
  piece.erase(piece.begin() + static_cast<std::ptrdiff_t>(dim));
  Rule rule;
  rule.in = {x};
  rule.out.assign(call.out.size(), piece);
  rule.linear = {1};
  return rule;
}
View unbound(const View& x, int64_t dim, size_t index) {
  View v = x;
  if (v.data) v.data = static_cast<char*>(v.data) + static_cast<int64_t>(index) * x.strides[dim] * size_of(x.dtype);
  v.shape.erase(dim);
  v.strides.erase(dim);
  return v;
}
bool unbind_view(const View& x, size_t output, const Shape&, const Attributes& attributes, View& result) {
  result = unbound(x, attributes.as<UnbindAttributes>().dim, output);
  return true;
}
// One tensor for the gradients of all pieces.
void unbind_backward(const BackwardCall& c, std::span<Tensor> out) {
  int64_t dim = c.attributes.as<UnbindAttributes>().dim;
  Device device = Device::Cpu;
  for (const Tensor& g : c.grads)
    if (g.defined()) device = g.device();
  out[0] = detail::make_tensor(c.input_shape(0), c.input_dtype(0), device);
  for (size_t i = 0; i < c.grads.size(); ++i) {
    View piece = unbound(out[0].impl()->view, dim, i);
    if (c.grads[i].defined())
      detail::copy_view(device, detail::elements(c.grads[i]), piece);
    else
      detail::fill_view(device, piece, 0.0);
  }
}

void infer_clone(const InferCall& call, std::span<OutputType> out) { out[0] = {call.dtype(0), call.shape(0)}; }
void clone_backward(const BackwardCall& c, std::span<Tensor> out) { out[0] = c.grads[0]; }

std::vector<Sample> permute_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, dims] :
       {std::pair<Shape, Dims>{{5, 7}, {1, 0}}, {{2, 3, 4}, {2, 0, 1}}, {{2, 3, 4}, {0, 2, 1}}, {{0, 3}, {1, 0}}})
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(ListAttributes(dims)), .integers = true});
  return out;
}
std::vector<Sample> expand_samples() {
  std::vector<Sample> out;
  for (const auto& [from, to] : {std::pair<Shape, Shape>{{5, 1}, {5, 7}},
                                 {{7}, {5, 7}},
                                 {{1, 3, 1}, {2, -1, 4}},
                                 {{}, {3}},
                                 {{5, 7}, {5, 7}},
                                 {{1, 3}, {0, 3}}})
    out.push_back({.inputs = {{from}}, .attributes = sample_attributes(ListAttributes(to)), .integers = true});
  return out;
}
std::vector<Sample> slice_samples() {
  std::vector<Sample> out;
  const std::pair<Shape, SliceAttributes> cases[] = {{{5, 7}, {0, 1, 3, 1}},    {{5, 7}, {1, 0, 4, 2}},
                                                     {{2, 3, 4}, {1, 2, 1, 1}}, {{5, 7}, {0, 0, 5, 1}},
                                                     {{5, 7}, {0, 2, 0, 1}},    {{0, 3}, {1, 1, 2, 1}}};
  for (const auto& [shape, a] : cases)
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(a), .integers = true});
  return out;
}

std::vector<Sample> unbind_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, dim] :
       {std::pair<Shape, int64_t>{{3, 5}, 0}, {{5, 3}, 1}, {{2, 3, 7}, 1}, {{3}, 0}, {{0, 3}, 1}})
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(UnbindAttributes{dim}), .integers = true});
  return out;
}

}  // namespace

extern const OpDef permute{.name = "permute",
                           .infer = infer_permute,
                           .layout = permute_rule,
                           .key_bytes = sizeof(ListAttributes),
                           .view = permute_view,
                           .backward = permute_backward,
                           .cost = free_cost,
                           .samples = permute_samples};
extern const OpDef expand{.name = "expand",
                          .infer = infer_expand,
                          .layout = expand_rule,
                          .key_bytes = sizeof(ListAttributes),
                          .view = expand_view,
                          .backward = expand_backward,
                          .cost = free_cost,
                          .samples = expand_samples};
extern const OpDef slice{.name = "slice",
                         .infer = infer_slice,
                         .layout = slice_rule,
                         .key_bytes = sizeof(SliceAttributes),
                         .view = slice_view,
                         .backward = slice_backward,
                         .cost = free_cost,
                         .samples = slice_samples};
extern const OpDef unbind{.name = "unbind",
                          .infer = infer_unbind,
                          .layout = unbind_rule,
                          .key_bytes = sizeof(UnbindAttributes),
                          .view = unbind_view,
                          .backward = unbind_backward,
                          .cost = free_cost,
                          .samples = unbind_samples,
                          .outputs = 3};
extern const OpDef clone{
    .name = "clone",
    .infer = infer_clone,
    .layout = pointwise_op::linear,
    .kernel = {.cpu = [](const KernelCall& c) { detail::copy_view(Device::Cpu, *c.in[0], *c.out[0]); }},
    .backward = clone_backward,
    .cost = pointwise_op::cost,
    .samples = [] { return pointwise_op::unary_samples(Fill::normal); }};

}  // namespace ops

Tensor permute(const Tensor& x, const Dims& dims) {
  Dims order;
  for (int64_t d : dims) order.push_back(wrap_dim("permute", d, x.type()));
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool fits = dims.rank() == x.dim();
  for (int i = 0; fits && i < sorted.rank(); ++i) fits = sorted[i] == i;
  if (!fits)
    throw ShapeError(
        op_message("permute", to_string(dims) + " is no permutation of the dims of " + describe(x.type())));
  return apply(ops::permute, ops::ListAttributes(order), x);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  int64_t a = wrap_dim("transpose", dim0, x.type()), b = wrap_dim("transpose", dim1, x.type());
  Dims order;
  for (int d = 0; d < x.dim(); ++d) order.push_back(d);
  std::swap(order[a], order[b]);
  return apply(ops::permute, ops::ListAttributes(order), x);
}

Tensor expand(const Tensor& x, const Shape& shape) { return apply(ops::expand, ops::ListAttributes(shape), x); }

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  int64_t d = wrap_dim("slice", dim, x.type()), n = x.shape()[d];
  if (step <= 0) throw ValueError(op_message("slice", "step is " + std::to_string(step) + "; it must be positive"));
  auto clamped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  int64_t first = clamped(start), last = std::max(first, clamped(end));
  return apply(ops::slice, ops::SliceAttributes{d, first, (last - first + step - 1) / step, step}, x);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  int64_t d = wrap_dim("narrow", dim, x.type()), n = x.shape()[d];
  if (start < 0 || length < 0 || start + length > n)
    throw ShapeError(op_message("narrow", std::to_string(length) + " elements from " + std::to_string(start) +
                                              " do not lie in dim " + std::to_string(d) + " of " + describe(x.type())));
  return apply(ops::slice, ops::SliceAttributes{d, start, length, 1}, x);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  int64_t d = wrap_dim("select", dim, x.type()), n = x.shape()[d];
  if (index < -n || index >= n)
    throw IndexError(op_message("select", "index " + std::to_string(index) + " is out of range for dim " +
                                              std::to_string(d) + " of " + describe(x.type())));
  return squeeze(apply(ops::slice, ops::SliceAttributes{d, index < 0 ? index + n : index, 1, 1}, x), d);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  int64_t d = wrap_dim("unbind", dim, x.type()), n = x.shape()[d];
  std::vector<Tensor> out;
  if (n >= 1 && n <= kMaxOutputs) {
    out.resize(static_cast<size_t>(n));
    const Tensor* in[] = {&x};
    dispatch(ops::unbind, in, ops::UnbindAttributes{d}, out);
    return out;
  }
  for (int64_t i = 0; i < x.shape()[d]; ++i) out.push_back(select(x, d, i));
  return out;
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  int64_t d = wrap_dim("split", dim, x.type()), total = 0;
  for (int64_t s : sizes) total += s;
  if (total != x.shape()[d])
    throw ShapeError(op_message("split", "sizes add up to " + std::to_string(total) + " but dim " + std::to_string(d) +
                                             " of " + describe(x.type()) + " is " + std::to_string(x.shape()[d])));
  std::vector<Tensor> out;
  int64_t at = 0;
  for (int64_t s : sizes) {
    out.push_back(narrow(x, d, at, s));
    at += s;
  }
  return out;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  if (size <= 0) throw ValueError(op_message("split", "size is " + std::to_string(size) + "; it must be positive"));
  int64_t n = x.size(dim);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < n || sizes.empty(); at += size) sizes.push_back(std::min(size, n - at));
  return split(x, sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t n, int64_t dim) {
  if (n <= 0)
    throw ValueError(op_message("chunk", std::to_string(n) + " pieces were asked for; there must be at least one"));
  return split(x, std::max<int64_t>(1, (x.size(dim) + n - 1) / n), dim);
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }
Tensor clone(const Tensor& x) { return apply(ops::clone, PointwiseParams{}, x); }

}  // namespace cleave
