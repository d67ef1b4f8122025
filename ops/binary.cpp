#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/pointwise_op.h>

namespace cleave {

using namespace pointwise_op;

namespace ops {
namespace {

Rule linear_in_each(const RuleCall& call) { return pointwise_rule(call, {0b01, 0b10}); }
Rule linear_in_first(const RuleCall& call) { return pointwise_rule(call, {0b01}); }
Rule where_rule(const RuleCall& call) { return pointwise_rule(call, {0b110}); }

void infer_where(const InferCall& call, std::span<OutputType> out) {
  const Tensor &c = *call.in[0], &a = *call.in[1], &b = *call.in[2];
  if (c.dtype() != DType::boolean)
    throw DTypeError(op_message(
        "where", "the condition is " + describe(c.type()) + " and must be bool; compare it with something first"));
  Shape ab = broadcast_shapes("where", a, b);
  // The condition against the broadcast of the other two, without making a tensor for it.
  Shape shape = ab;
  while (shape.rank() < c.dim()) shape.insert(0, 1);
  for (int i = 1; i <= shape.rank(); ++i) {
    int64_t n = i <= c.dim() ? c.shape()[c.dim() - i] : 1, &m = shape[shape.rank() - i];
    if (m != n && m != 1 && n != 1)
      throw ShapeError(op_message("where", describe(c.type()) + " does not broadcast with " + describe(a.type()) +
                                               " and " + describe(b.type())));
    if (m == 1) m = n;
  }
  out[0] = {promote(a.dtype(), b.dtype()), shape};
}

template <Pointwise F>
Tensor broadcast_call(const BackwardCall& c, std::initializer_list<const Tensor*> in, DType dtype) {
  return run_kernel(kernel<F>, c.op.name, in, c.grads[0].shape(), dtype, PointwiseParams{});
}

void add_backward(const BackwardCall& c, std::span<Tensor> out) {
  for (size_t i = 0; i < 2; ++i)
    if (c.needs[i]) out[i] = unbroadcast(c, i, c.grads[0]);
}
void sub_backward(const BackwardCall& c, std::span<Tensor> out) {
  if (c.needs[0]) out[0] = unbroadcast(c, 0, c.grads[0]);
  if (c.needs[1]) {
    Tensor s = unbroadcast(c, 1, c.grads[0]);
    out[1] = call<Pointwise::neg>({&s});
  }
}
void mul_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor& g = c.grads[0];
  for (size_t i = 0; i < 2; ++i)
    if (c.needs[i]) out[i] = unbroadcast(c, i, broadcast_call<Pointwise::mul>(c, {&g, &c.inputs[1 - i]}, g.dtype()));
}
void div_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor &g = c.grads[0], &a = c.inputs[0], &b = c.inputs[1];
  if (c.needs[0]) out[0] = unbroadcast(c, 0, broadcast_call<Pointwise::div>(c, {&g, &b}, g.dtype()));
  if (c.needs[1]) out[1] = unbroadcast(c, 1, broadcast_call<Pointwise::div_grad_b>(c, {&a, &b, &g}, g.dtype()));
}
void pow_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor &g = c.grads[0], &a = c.inputs[0], &b = c.inputs[1];
  if (c.needs[0]) out[0] = unbroadcast(c, 0, broadcast_call<Pointwise::pow_grad_a>(c, {&a, &b, &g}, g.dtype()));
  if (c.needs[1]) out[1] = unbroadcast(c, 1, broadcast_call<Pointwise::pow_grad_b>(c, {&a, &b, &g}, g.dtype()));
}
template <Pointwise G>
void extremum_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor &g = c.grads[0], &a = c.inputs[0], &b = c.inputs[1];
  if (c.needs[0]) out[0] = unbroadcast(c, 0, broadcast_call<G>(c, {&a, &b, &g}, g.dtype()));
  if (c.needs[1]) out[1] = unbroadcast(c, 1, broadcast_call<G>(c, {&b, &a, &g}, g.dtype()));
}
void where_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor &g = c.grads[0], &cond = c.inputs[0];
  Tensor zero = detail::make_tensor({}, g.dtype(), g.device());
  detail::fill_view(zero.device(), zero.impl()->view, 0.0);
  if (c.needs[1]) out[1] = unbroadcast(c, 1, broadcast_call<Pointwise::where>(c, {&cond, &g, &zero}, g.dtype()));
  if (c.needs[2]) out[2] = unbroadcast(c, 2, broadcast_call<Pointwise::where>(c, {&cond, &zero, &g}, g.dtype()));
}
void pass_backward(const BackwardCall& c, std::span<Tensor> out) { out[0] = c.grads[0]; }
void neg_backward(const BackwardCall& c, std::span<Tensor> out) { out[0] = call<Pointwise::neg>({&c.grads[0]}); }
void scale_backward(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = call<Pointwise::mul_scalar>({&c.grads[0]}, c.attributes);
}

// x >= p and x > p select the gradient of max(x, p); ties share as between tensors, half each.
void max_scalar_backward(const BackwardCall& c, std::span<Tensor> out) {
  Tensor p = detail::make_tensor({}, c.input_dtype(0), c.grads[0].device());
  detail::fill_view(p.device(), p.impl()->view, c.attributes.as<PointwiseParams>().p);
  out[0] = broadcast_call<Pointwise::maximum_grad>(c, {&c.inputs[0], &p, &c.grads[0]}, c.grads[0].dtype());
}
void min_scalar_backward(const BackwardCall& c, std::span<Tensor> out) {
  Tensor p = detail::make_tensor({}, c.input_dtype(0), c.grads[0].device());
  detail::fill_view(p.device(), p.impl()->view, c.attributes.as<PointwiseParams>().p);
  out[0] = broadcast_call<Pointwise::minimum_grad>(c, {&c.inputs[0], &p, &c.grads[0]}, c.grads[0].dtype());
}

// masked_fill: where(mask, value, x), the value being a scalar view of the attributes.
void infer_masked_fill(const InferCall& call, std::span<OutputType> out) {
  if (call.dtype(1) != DType::boolean)
    throw DTypeError(op_message("masked_fill", "the mask is " + describe(call.in[1]->type()) +
                                                   " and must be bool; compare it with something first"));
  out[0] = {call.dtype(0), broadcast_shapes("masked_fill", *call.in[0], *call.in[1])};
}
void masked_fill_kernel(const KernelCall& c) {
  double value = c.attributes.as<PointwiseParams>().p;
  View scalar{&value, DType::f64, {}, {}};
  float single = static_cast<float>(value);
  if (c.out[0]->dtype != DType::f64) scalar = {&single, DType::f32, {}, {}};
  const View* in[] = {c.in[1], &scalar, c.in[0]};
  cpu::pointwise(Pointwise::where, in, *c.out[0]);
}
int64_t masked_fill_scratch(const KernelCall& c) { return cpu::pointwise_scratch(c.in, *c.out[0]); }
void masked_fill_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor& g = c.grads[0];
  Tensor zero = detail::make_tensor({}, g.dtype(), g.device());
  detail::fill_view(zero.device(), zero.impl()->view, 0.0);
  out[0] = unbroadcast(c, 0, broadcast_call<Pointwise::where>(c, {&c.inputs[1], &zero, &g}, g.dtype()));
}
std::vector<Sample> masked_fill_samples() {
  std::vector<Sample> out;
  for (const auto& [x, m] :
       {std::pair<Shape, Shape>{{5, 7}, {5, 7}}, {{5, 7}, {7}}, {{2, 1, 3}, {4, 1}}, {{0, 2}, {2}}})
    out.push_back({.inputs = {{x}, {m, Fill::boolean}}, .attributes = sample_attributes(PointwiseParams{-2.5, 0})});
  out.push_back({.inputs = {{{5, 7}}, {{7}, Fill::boolean}},
                 .attributes = sample_attributes(PointwiseParams{3, 0}),
                 .integers = true});
  return out;
}

std::vector<Sample> comparison_samples() { return binary_samples(Fill::normal, Fill::normal, true, false); }
std::vector<Sample> scalar_comparison_samples() { return unary_samples(Fill::normal, {0.25, 0}, true, false); }

std::vector<Sample> where_samples() {
  std::vector<Sample> out;
  const std::array<Shape, 3> shapes[] = {
      {{{5, 7}, {5, 7}, {5, 7}}}, {{{7}, {5, 1}, {}}}, {{{2, 3, 1}, {4}, {3, 4}}}, {{{0, 2}, {2}, {}}}};
  for (const auto& [c, a, b] : shapes)
    out.push_back({.inputs = {{c, Fill::boolean}, {a}, {b}},
                   .attributes = sample_attributes(PointwiseParams{}),
                   .integers = true});
  return out;
}

}  // namespace

extern const OpDef add{.name = "add",
                       .infer = infer_binary,
                       .layout = jointly_linear,
                       .kernel = kernel<Pointwise::add>,
                       .backward = add_backward,
                       .cost = cost,
                       .samples = [] { return binary_samples(Fill::normal, Fill::normal); },
                       .precision = Precision::widest};
extern const OpDef sub{.name = "sub",
                       .infer = infer_binary,
                       .layout = jointly_linear,
                       .kernel = kernel<Pointwise::sub>,
                       .backward = sub_backward,
                       .cost = cost,
                       .samples = [] { return binary_samples(Fill::normal, Fill::normal); },
                       .precision = Precision::widest};
extern const OpDef mul{.name = "mul",
                       .infer = infer_binary,
                       .layout = linear_in_each,
                       .kernel = kernel<Pointwise::mul>,
                       .backward = mul_backward,
                       .saves = {.inputs = 0b11},
                       .cost = cost,
                       .samples = [] { return binary_samples(Fill::normal, Fill::normal); },
                       .precision = Precision::widest};
extern const OpDef div{.name = "div",
                       .infer = infer_binary_floating,
                       .layout = linear_in_first,
                       .kernel = kernel<Pointwise::div>,
                       .backward = div_backward,
                       .saves = {.inputs = 0b11},
                       .cost = cost,
                       .samples = [] { return binary_samples(Fill::normal, Fill::positive); },
                       .precision = Precision::widest};
extern const OpDef pow{.name = "pow",
                       .infer = infer_binary_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::pow>,
                       .backward = pow_backward,
                       .saves = {.inputs = 0b11},
                       .cost = cost,
                       .samples = [] { return binary_samples(Fill::positive, Fill::normal); },
                       .precision = Precision::f32};
extern const OpDef maximum{.name = "maximum",
                           .infer = infer_binary,
                           .layout = not_linear,
                           .kernel = kernel<Pointwise::maximum>,
                           .backward = extremum_backward<Pointwise::maximum_grad>,
                           .saves = {.inputs = 0b11},
                           .cost = cost,
                           .samples = [] { return binary_samples(Fill::normal, Fill::normal); },
                           .precision = Precision::widest};
extern const OpDef minimum{.name = "minimum",
                           .infer = infer_binary,
                           .layout = not_linear,
                           .kernel = kernel<Pointwise::minimum>,
                           .backward = extremum_backward<Pointwise::minimum_grad>,
                           .saves = {.inputs = 0b11},
                           .cost = cost,
                           .samples = [] { return binary_samples(Fill::normal, Fill::normal); },
                           .precision = Precision::widest};
extern const OpDef floor_divide{.name = "floor_divide",
                                .infer = infer_binary,
                                .layout = not_linear,
                                .kernel = kernel<Pointwise::floor_div>,
                                .cost = cost,
                                .samples = [] { return binary_samples(Fill::normal, Fill::positive, true, false); },
                                .precision = Precision::widest};
extern const OpDef remainder{.name = "remainder",
                             .infer = infer_binary,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::remainder>,
                             .cost = cost,
                             .samples = [] { return binary_samples(Fill::normal, Fill::positive, true, false); },
                             .precision = Precision::widest};

extern const OpDef add_scalar{.name = "add",
                              .infer = infer_same,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::add_scalar>,
                              .backward = pass_backward,
                              .cost = cost,
                              .samples = [] {
                                return unary_samples(Fill::normal, {1.5, 0});
                              }};
extern const OpDef rsub_scalar{.name = "sub",
                               .infer = infer_same,
                               .layout = not_linear,
                               .kernel = kernel<Pointwise::rsub_scalar>,
                               .backward = neg_backward,
                               .cost = cost,
                               .samples = [] {
                                 return unary_samples(Fill::normal, {1.5, 0});
                               }};
extern const OpDef mul_scalar{.name = "mul",
                              .infer = infer_same,
                              .layout = linear,
                              .kernel = kernel<Pointwise::mul_scalar>,
                              .backward = scale_backward,
                              .cost = cost,
                              .samples = [] {
                                return unary_samples(Fill::normal, {-2.5, 0});
                              }};
extern const OpDef rdiv_scalar{.name = "div",
                               .infer = infer_floating,
                               .layout = not_linear,
                               .kernel = kernel<Pointwise::rdiv_scalar>,
                               .backward = backward_x<Pointwise::rdiv_scalar_grad>,
                               .saves = {.inputs = 1},
                               .cost = cost,
                               .samples = [] {
                                 return unary_samples(Fill::positive, {1.5, 0});
                               }};
extern const OpDef max_scalar{.name = "maximum",
                              .infer = infer_same,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::max_scalar>,
                              .backward = max_scalar_backward,
                              .saves = {.inputs = 1},
                              .cost = cost,
                              .samples = [] {
                                return unary_samples(Fill::normal, {0.25, 0});
                              }};
extern const OpDef min_scalar{.name = "minimum",
                              .infer = infer_same,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::min_scalar>,
                              .backward = min_scalar_backward,
                              .saves = {.inputs = 1},
                              .cost = cost,
                              .samples = [] {
                                return unary_samples(Fill::normal, {0.25, 0});
                              }};

extern const OpDef eq{.name = "eq",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::eq>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef ne{.name = "ne",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::ne>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef lt{.name = "lt",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::lt>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef le{.name = "le",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::le>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef gt{.name = "gt",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::gt>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef ge{.name = "ge",
                      .infer = infer_binary_bool,
                      .layout = not_linear,
                      .kernel = kernel<Pointwise::ge>,
                      .cost = cost,
                      .samples = comparison_samples,
                      .precision = Precision::widest};
extern const OpDef logical_and{.name = "logical_and",
                               .infer = infer_binary_bool,
                               .layout = not_linear,
                               .kernel = kernel<Pointwise::logical_and>,
                               .cost = cost,
                               .samples = comparison_samples};
extern const OpDef logical_or{.name = "logical_or",
                              .infer = infer_binary_bool,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::logical_or>,
                              .cost = cost,
                              .samples = comparison_samples};
extern const OpDef logical_xor{.name = "logical_xor",
                               .infer = infer_binary_bool,
                               .layout = not_linear,
                               .kernel = kernel<Pointwise::logical_xor>,
                               .cost = cost,
                               .samples = comparison_samples};
extern const OpDef eq_scalar{.name = "eq",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::eq_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef ne_scalar{.name = "ne",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::ne_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef lt_scalar{.name = "lt",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::lt_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef le_scalar{.name = "le",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::le_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef gt_scalar{.name = "gt",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::gt_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef ge_scalar{.name = "ge",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::ge_scalar>,
                             .cost = cost,
                             .samples = scalar_comparison_samples};
extern const OpDef where{.name = "where",
                         .infer = infer_where,
                         .layout = where_rule,
                         .kernel = kernel<Pointwise::where>,
                         .backward = where_backward,
                         .saves = {.inputs = 0b001},
                         .cost = cost,
                         .samples = where_samples,
                         .precision = Precision::widest};

extern const OpDef masked_fill{.name = "masked_fill",
                               .infer = infer_masked_fill,
                               .layout = not_linear,
                               .kernel = {.cpu = masked_fill_kernel, .cpu_scratch = masked_fill_scratch},
                               .backward = masked_fill_backward,
                               .saves = {.inputs = 0b10},
                               .cost = cost,
                               .samples = masked_fill_samples};

}  // namespace ops

namespace {

Tensor two(const OpDef& op, const Tensor& a, const Tensor& b) { return apply(op, PointwiseParams{}, a, b); }

// Integers beside a floating number compute in f32.
Tensor one(const OpDef& op, const Tensor& x, Number n) {
  bool widen = !n.integral && !is_floating(x.dtype());
  return apply(op, PointwiseParams{n.value, 0}, widen ? cast(x, DType::f32) : x);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return two(ops::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return two(ops::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return two(ops::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return two(ops::div, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return two(ops::pow, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return two(ops::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return two(ops::minimum, a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return two(ops::floor_divide, a, b); }
Tensor remainder(const Tensor& a, const Tensor& b) { return two(ops::remainder, a, b); }

Tensor add(const Tensor& a, Number b) { return one(ops::add_scalar, a, b); }
Tensor sub(const Tensor& a, Number b) {
  return one(ops::add_scalar, a, [&] {
    b.value = -b.value;
    return b;
  }());
}
Tensor mul(const Tensor& a, Number b) { return one(ops::mul_scalar, a, b); }
Tensor div(const Tensor& a, Number b) { return one(ops::mul_scalar, a, 1.0 / b.value); }
Tensor maximum(const Tensor& a, Number b) { return one(ops::max_scalar, a, b); }
Tensor minimum(const Tensor& a, Number b) { return one(ops::min_scalar, a, b); }

Tensor operator+(const Tensor& a, const Tensor& b) { return two(ops::add, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return two(ops::sub, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return two(ops::mul, a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return two(ops::div, a, b); }
Tensor operator+(const Tensor& a, Number b) { return add(a, b); }
Tensor operator-(const Tensor& a, Number b) { return sub(a, b); }
Tensor operator*(const Tensor& a, Number b) { return mul(a, b); }
Tensor operator/(const Tensor& a, Number b) { return div(a, b); }
Tensor operator+(Number a, const Tensor& b) { return add(b, a); }
Tensor operator-(Number a, const Tensor& b) { return one(ops::rsub_scalar, b, a); }
Tensor operator*(Number a, const Tensor& b) { return mul(b, a); }
Tensor operator/(Number a, const Tensor& b) { return one(ops::rdiv_scalar, b, a); }

Tensor eq(const Tensor& a, const Tensor& b) { return two(ops::eq, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return two(ops::ne, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return two(ops::lt, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return two(ops::le, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return two(ops::gt, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return two(ops::ge, a, b); }
Tensor eq(const Tensor& a, Number b) { return one(ops::eq_scalar, a, b); }
Tensor ne(const Tensor& a, Number b) { return one(ops::ne_scalar, a, b); }
Tensor lt(const Tensor& a, Number b) { return one(ops::lt_scalar, a, b); }
Tensor le(const Tensor& a, Number b) { return one(ops::le_scalar, a, b); }
Tensor gt(const Tensor& a, Number b) { return one(ops::gt_scalar, a, b); }
Tensor ge(const Tensor& a, Number b) { return one(ops::ge_scalar, a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return two(ops::logical_and, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return two(ops::logical_or, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return two(ops::logical_xor, a, b); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply(ops::where, PointwiseParams{}, condition, a, b);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
  return apply(ops::masked_fill, PointwiseParams{value.value, 0}, x, mask);
}

}  // namespace cleave
