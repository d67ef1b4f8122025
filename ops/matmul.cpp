#include <cleave/core/cpu/matmul.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/op.h>
#include <cleave/ops/view.h>

namespace cleave {
namespace ops {
namespace {

void require_matching_dtypes(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    throw DTypeError(
        op_message(op, describe(a.type()) + " and " + describe(b.type()) + " have different dtypes; cast one of them"));
}

void infer_matmul(const InferCall& call, std::span<OutputType> out) {
  const Shape &a = call.shape(0), &b = call.shape(1);
  const Tensor &x = *call.in[0], &y = *call.in[1];
  require_matching_dtypes("matmul", x, y);
  int64_t k = a[a.rank() - 1], inner = b[b.rank() - 2];
  if (k != inner)
    throw ShapeError(op_message("matmul", describe(x.type()) + " and " + describe(y.type()) +
                                              " do not fit: the inner sizes are " + std::to_string(k) + " and " +
                                              std::to_string(inner)));
  Shape lead;
  int rank = std::max(a.rank(), b.rank()) - 2;
  lead.resize(rank);
  for (int i = 1; i <= rank; ++i) {
    int64_t m = i + 2 <= a.rank() ? a[a.rank() - 2 - i] : 1, n = i + 2 <= b.rank() ? b[b.rank() - 2 - i] : 1;
    if (m != n && m != 1 && n != 1)
      throw ShapeError(op_message(
          "matmul", "the leading dims of " + describe(x.type()) + " and " + describe(y.type()) + " do not broadcast"));
    lead[rank - i] = m == 1 ? n : m;
  }
  lead.push_back(a[a.rank() - 2]);
  lead.push_back(b[b.rank() - 1]);
  out[0] = {x.dtype(), lead};
}

Rule matmul_rule(const RuleCall& call) {
  Rule rule = parse_rule("...mk,...kn->...mn", call);
  rule.reduced = {'k'};
  rule.linear = {0b01, 0b10};
  return rule;
}

void matmul_kernel(const KernelCall& c) { cpu::matmul(*c.in[0], *c.in[1], *c.out[0]); }
constexpr Kernel kMatmul{.cpu = matmul_kernel};

View swapped(const View& v) {
  View out = v;
  int r = v.rank();
  std::swap(out.shape[r - 1], out.shape[r - 2]);
  std::swap(out.strides[r - 1], out.strides[r - 2]);
  return out;
}

Tensor transposed(const Tensor& x) {
  View v = swapped(x.impl()->view);
  return detail::make_view(x, v, v.shape, nullptr);
}

// The product summed over the leading dims that broadcasting added to the operand.
Tensor product(const Tensor& a, const Tensor& b, const Shape& shape, DType dtype) {
  Shape full;
  int rank = std::max(a.dim(), b.dim());
  full.resize(rank);
  for (int i = 1; i <= rank - 2; ++i) {
    int64_t m = i + 2 <= a.dim() ? a.shape()[a.dim() - 2 - i] : 1,
            n = i + 2 <= b.dim() ? b.shape()[b.dim() - 2 - i] : 1;
    full[rank - 2 - i] = m == 1 ? n : m;
  }
  full[rank - 2] = a.shape()[a.dim() - 2];
  full[rank - 1] = b.shape().back();
  Tensor out = run_kernel(kMatmul, "matmul", {&a, &b}, full, dtype);
  if (full == shape) return out;
  Shape kept = full;
  int added = rank - shape.rank();
  for (int d = 0; d < rank; ++d)
    if (d < added || shape[d - added] != full[d]) kept[d] = 1;
  static constexpr Kernel sum{.cpu = [](const KernelCall& c) { cpu::reduce(cpu::Reduce::sum, *c.in[0], *c.out[0]); }};
  Tensor reduced = run_kernel(sum, "sum", {&out}, kept, out.dtype());
  View v = reduced.impl()->view;
  v.shape = shape;
  v.strides = contiguous_strides(shape);
  return detail::make_view(reduced, v, shape, nullptr);
}

// A plain matrix on the right of many rows: one product over the flattened rows instead of a batch that is summed.
bool is_flat(const Tensor& g, const Shape& weight) { return weight.rank() == 2 && g.dim() > 2; }

Tensor flat_rows(const Tensor& x) {
  Tensor d = detail::dense(x);
  View v = d.impl()->view;
  int64_t n = x.shape().back(), rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.shape()[i];
  v.shape = {rows, n};
  v.strides = contiguous_strides(v.shape);
  return detail::make_view(d, v, v.shape, nullptr);
}

void matmul_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &g = c.grads[0];
  if (c.needs[0]) out[0] = product(g, transposed(b), c.input_shape(0), c.gradient_dtype(0));
  if (!c.needs[1]) return;
  if (is_flat(g, c.input_shape(1)))
    out[1] = product(transposed(flat_rows(a)), flat_rows(g), c.input_shape(1), c.gradient_dtype(1));
  else
    out[1] = product(transposed(a), g, c.input_shape(1), c.gradient_dtype(1));
}

Cost matmul_cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes&) {
  double k = static_cast<double>(in[0]->shape.back()), n = static_cast<double>(out[0]->numel());
  double bytes = static_cast<double>((in[0]->numel() + in[1]->numel() + out[0]->numel()) * size_of(out[0]->dtype));
  return {2 * n * k, bytes};
}

std::vector<Sample> matmul_samples() {
  std::vector<Sample> out;
  const std::pair<Shape, Shape> shapes[] = {{{5, 7}, {7, 3}},          {{2, 5, 4}, {4, 3}}, {{2, 3, 4}, {2, 4, 5}},
                                            {{3, 1, 2, 4}, {2, 4, 3}}, {{5, 0}, {0, 3}},    {{1, 4}, {4, 1}},
                                            {{0, 4}, {4, 3}}};
  for (const auto& [a, b] : shapes) out.push_back({.inputs = {{a}, {b}}, .attributes = {}, .integers = true});
  return out;
}

struct LinearAttributes {
  int64_t in_dims;
};

void infer_linear(const InferCall& call, std::span<OutputType> out) {
  const Tensor &x = *call.in[0], &w = *call.in[1];
  int64_t n = call.attributes.as<LinearAttributes>().in_dims;
  require_matching_dtypes("linear", x, w);
  bool fits = n >= 1 && n <= x.dim() && n <= w.dim();
  for (int64_t i = 1; fits && i <= n; ++i) fits = x.shape()[x.dim() - i] == w.shape()[w.dim() - i];
  if (!fits)
    throw ShapeError(op_message("linear", describe(x.type()) + " and the weight " + describe(w.type()) +
                                              " do not agree on their last " + std::to_string(n) + " dims"));
  Shape shape;
  for (int64_t d = 0; d < x.dim() - n; ++d) shape.push_back(x.shape()[d]);
  Shape features;
  for (int64_t d = 0; d < w.dim() - n; ++d) {
    shape.push_back(w.shape()[d]);
    features.push_back(w.shape()[d]);
  }
  if (call.has(2)) {
    require_matching_dtypes("linear", x, *call.in[2]);
    if (!(call.shape(2) == features))
      throw ShapeError(op_message(
          "linear", "the bias is " + describe(call.in[2]->type()) + " and must have shape " + to_string(features)));
  }
  out[0] = {x.dtype(), shape};
}

Rule linear_rule(const RuleCall& call) {
  int64_t n = call.attributes.as<LinearAttributes>().in_dims;
  int lead = static_cast<int>(call.in[0].shape.rank() - n), features = static_cast<int>(call.in[1].shape.rank() - n);
  OperandLetters rows = plain_letters(lead), outs = plain_letters(features, lead),
                 inner = plain_letters(static_cast<int>(n), lead + features);
  auto join = [](OperandLetters a, const OperandLetters& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  Rule rule;
  rule.in = {join(rows, inner), join(outs, inner), call.present[2] ? outs : OperandLetters{}};
  rule.out = {join(rows, outs)};
  for (const DimLetters& d : inner) rule.reduced.push_back(d[0]);
  // The bias is added: it counts once, on the first rank, wherever the product is a partial sum.
  rule.addends = call.present[2] ? 0b100u : 0u;
  rule.linear = {0b001u | rule.addends, 0b010u | rule.addends};
  return rule;
}

// [rows..., inner...] as a dense matrix [rows, inner].
Tensor as_matrix(const Tensor& x, int64_t trailing) {
  Tensor d = detail::dense(x);
  int64_t rows = 1, columns = 1;
  for (int i = 0; i < x.dim(); ++i) (i < x.dim() - trailing ? rows : columns) *= x.shape()[i];
  View v = d.impl()->view;
  v.shape = {rows, columns};
  v.strides = contiguous_strides(v.shape);
  return detail::make_view(d, v, v.shape, nullptr);
}

View flat_view(const View& v, int64_t rows, int64_t columns) {
  View out = v;
  out.shape = rows < 0 ? Shape{columns} : Shape{rows, columns};
  out.strides = contiguous_strides(out.shape);
  return out;
}

void linear_kernel(const KernelCall& c) {
  int64_t n = c.attributes.as<LinearAttributes>().in_dims;
  auto matrix = [&](const View& v, int64_t trailing, Tensor& keep) {
    View dense = v;
    if (!v.contiguous()) {
      keep = detail::make_tensor(v.shape, v.dtype, Device::Cpu);
      detail::copy_view(Device::Cpu, v, keep.impl()->view);
      dense = keep.impl()->view;
    }
    int64_t rows = 1, columns = 1;
    for (int i = 0; i < v.rank(); ++i) (i < v.rank() - trailing ? rows : columns) *= v.shape[i];
    return flat_view(dense, rows, columns);
  };
  Tensor kx, kw, kb;
  View x = matrix(*c.in[0], n, kx), w = matrix(*c.in[1], n, kw), out = flat_view(*c.out[0], x.shape[0], w.shape[0]);
  if (!c.in[2]) return cpu::linear(x, w, nullptr, out);
  View b = matrix(*c.in[2], c.in[2]->rank(), kb);
  b = flat_view(b, -1, w.shape[0]);
  cpu::linear(x, w, &b, out);
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  View v = x.impl()->view;
  v.shape = shape;
  v.strides = contiguous_strides(shape);
  return detail::make_view(x, v, shape, nullptr);
}

void linear_backward(const BackwardCall& c, std::span<Tensor> out) {
  int64_t n = c.attributes.as<LinearAttributes>().in_dims;
  Tensor g = as_matrix(c.grads[0], c.input_shape(1).rank() - n);
  if (c.needs[0]) {
    Tensor w = as_matrix(c.inputs[1], n);
    out[0] = reshaped(product(g, w, {g.shape()[0], w.shape()[1]}, c.gradient_dtype(0)), c.input_shape(0));
  }
  if (c.needs[1]) {
    Tensor x = as_matrix(c.inputs[0], n);
    Shape shape{g.shape()[1], x.shape()[1]};
    out[1] = reshaped(product(transposed(g), x, shape, c.gradient_dtype(1)), c.input_shape(1));
  }
  if (c.needs[2]) {
    static constexpr Kernel sum{.cpu = [](const KernelCall& k) { cpu::reduce(cpu::Reduce::sum, *k.in[0], *k.out[0]); }};
    out[2] = reshaped(run_kernel(sum, "sum", {&g}, {1, g.shape()[1]}, c.gradient_dtype(2)), c.input_shape(2));
  }
}

Cost linear_cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes& attributes) {
  int64_t n = attributes.as<LinearAttributes>().in_dims;
  double k = 1;
  for (int64_t i = 1; i <= n; ++i) k *= static_cast<double>(in[0]->shape[in[0]->rank() - i]);
  double bytes = static_cast<double>((in[0]->numel() + in[1]->numel() + out[0]->numel()) * size_of(out[0]->dtype));
  return {2 * static_cast<double>(out[0]->numel()) * k, bytes};
}

std::vector<Sample> linear_samples() {
  std::vector<Sample> out;
  auto add = [&](const Shape& x, const Shape& w, const Shape& b, bool bias, int64_t n) {
    out.push_back({.inputs = {{x}, {w}, {b, Fill::normal, 0, true, !bias}},
                   .attributes = sample_attributes(LinearAttributes{n})});
  };
  add({5, 7}, {3, 7}, {3}, true, 1);
  add({5, 7}, {3, 7}, {3}, false, 1);
  add({2, 3, 4}, {3, 5, 4}, {3, 5}, true, 1);
  add({2, 3, 5, 2}, {4, 5, 2}, {4}, true, 2);
  add({2, 0}, {3, 0}, {3}, true, 1);
  add({0, 4}, {3, 4}, {3}, true, 1);
  return out;
}

}  // namespace

extern const OpDef matmul{.name = "matmul",
                          .infer = infer_matmul,
                          .layout = matmul_rule,
                          .kernel = kMatmul,
                          .backward = matmul_backward,
                          .saves = {.inputs = 0b11},
                          .cost = matmul_cost,
                          .samples = matmul_samples,
                          .precision = Precision::low};
extern const OpDef linear{.name = "linear",
                          .infer = infer_linear,
                          .layout = linear_rule,
                          .key_bytes = sizeof(LinearAttributes),
                          .kernel = {.cpu = linear_kernel},
                          .backward = linear_backward,
                          .saves = {.inputs = 0b011},
                          .cost = linear_cost,
                          .samples = linear_samples,
                          .precision = Precision::low};

}  // namespace ops

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.dim() == 0 || b.dim() == 0)
    throw ShapeError(
        op_message("matmul", describe(a.type()) + " and " + describe(b.type()) + ": a scalar is no matrix; use a * b"));
  bool row = a.dim() == 1, column = b.dim() == 1;
  Tensor y = apply(ops::matmul, {}, row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b);
  if (column) y = squeeze(y, -1);
  return row ? squeeze(y, column ? -1 : -2) : y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  return apply(ops::linear, ops::LinearAttributes{options.in_dims}, x, weight, bias);
}

}  // namespace cleave
