#include <cleave/core/cpu/reduce.h>
#include <cleave/ops/internal/pointwise_op.h>

#include <cmath>

namespace cleave::pointwise_op {

void infer_same(const InferCall& call, std::span<OutputType> out) { out[0] = {call.dtype(0), call.shape(0)}; }
void infer_floating(const InferCall& call, std::span<OutputType> out) {
  out[0] = {is_floating(call.dtype(0)) ? call.dtype(0) : DType::f32, call.shape(0)};
}
void infer_bool(const InferCall& call, std::span<OutputType> out) { out[0] = {DType::boolean, call.shape(0)}; }

void infer_binary(const InferCall& call, std::span<OutputType> out) {
  out[0] = {promote(call.dtype(0), call.dtype(1)), broadcast_shapes(call.op.name, *call.in[0], *call.in[1])};
}
void infer_binary_floating(const InferCall& call, std::span<OutputType> out) {
  infer_binary(call, out);
  if (!is_floating(out[0].dtype)) out[0].dtype = DType::f32;
}
void infer_binary_bool(const InferCall& call, std::span<OutputType> out) {
  infer_binary(call, out);
  out[0].dtype = DType::boolean;
}

Rule not_linear(const RuleCall& call) { return pointwise_rule(call); }
Rule linear(const RuleCall& call) { return pointwise_rule(call, {0b1}); }
Rule jointly_linear(const RuleCall& call) { return pointwise_rule(call, {0b11}); }

Cost cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes&) {
  Cost c;
  for (const View* v : in) c.bytes += v ? static_cast<double>(v->numel() * size_of(v->dtype)) : 0;
  for (const View* v : out) {
    c.bytes += static_cast<double>(v->numel() * size_of(v->dtype));
    c.flops += static_cast<double>(v->numel());
  }
  return c;
}

Tensor unbroadcast(const BackwardCall& call, size_t input, const Tensor& gradient) {
  const Shape &to = call.input_shape(input), &global = call.input_global(input), &from = gradient.shape();
  DType dtype = call.input_dtype(input);
  if (to == from) return gradient.dtype() == dtype ? gradient : detail::dense_copy(gradient, dtype);
  static constexpr Kernel sum{
      .cpu = [](const KernelCall& c) { cpu::reduce(cpu::Reduce::sum, *c.in[0], *c.out[0]); },
      .cpu_scratch = [](const KernelCall& c) { return cpu::reduce_scratch(cpu::Reduce::sum, *c.in[0], *c.out[0]); }};
  // Global sizes say which dims broadcast: a block of size 1 may be part of a larger dim.
  Shape kept = from;
  int added = from.rank() - to.rank();
  for (int d = 0; d < from.rank(); ++d)
    if (d < added || (global[d - added] == 1 && from[d] != to[d - added])) kept[d] = 1;
  Tensor reduced = kept == from ? gradient : run_kernel(sum, "sum", {&gradient}, kept, gradient.dtype());
  if (reduced.dtype() != dtype || !reduced.is_contiguous()) reduced = detail::dense_copy(reduced, dtype);
  View view = reduced.impl()->view;
  view.shape = to;
  view.strides = contiguous_strides(to);
  return detail::make_view(reduced, view, to, nullptr);
}

void backward_zero(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = detail::make_tensor(c.input_shape(0), c.input_dtype(0), c.grads[0].device());
  detail::fill_view(out[0].device(), out[0].impl()->view, 0.0);
}

std::vector<Sample> unary_samples(Fill fill, PointwiseParams params, bool integers, bool gradient) {
  // Public functions widen integers beside a fraction, so integers are tried with the next whole numbers.
  auto whole = [](double x) { return std::copysign(std::ceil(std::abs(x)), x); };
  PointwiseParams rounded{whole(params.p), whole(params.q)};
  bool fractions = rounded.p != params.p || rounded.q != params.q;
  std::vector<Sample> out;
  for (const Shape& shape : {Shape{5, 7}, Shape{2, 3, 4}, Shape{1}, Shape{}, Shape{0, 3}})
    out.push_back({.inputs = {{shape, fill}},
                   .attributes = sample_attributes(params),
                   .has_gradient = gradient,
                   .integers = integers && !fractions});
  if (integers && fractions)
    out.push_back({.inputs = {{{5, 7}, fill}},
                   .attributes = sample_attributes(rounded),
                   .has_gradient = gradient,
                   .integers = true});
  return out;
}

std::vector<Sample> binary_samples(Fill a, Fill b, bool integers, bool gradient) {
  std::vector<Sample> out;
  const std::pair<Shape, Shape> shapes[] = {{{5, 7}, {5, 7}}, {{5, 7}, {7}},    {{4, 1, 3}, {2, 1}},
                                            {{1}, {3, 2}},    {{}, {2, 3}},     {{3}, {}},
                                            {{0, 3}, {1, 3}}, {{2, 1}, {1, 5}}, {{2, 3, 4}, {3, 4}}};
  for (const auto& [x, y] : shapes)
    out.push_back({.inputs = {{x, a}, {y, b}},
                   .attributes = sample_attributes(PointwiseParams{}),
                   .has_gradient = gradient,
                   .integers = integers});
  return out;
}

}  // namespace cleave::pointwise_op
