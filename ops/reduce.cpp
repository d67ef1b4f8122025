#include <cleave/core/cpu/reduce.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/internal/reduce_op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

#include <cmath>

namespace cleave {
namespace reduce_op {

Shape reduced_shape(const Shape& x, const ReduceAttributes& a) {
  Shape out;
  for (int d = 0; d < x.rank(); ++d) {
    if (!a.has(d))
      out.push_back(x[d]);
    else if (a.keepdim)
      out.push_back(1);
  }
  return out;
}

Shape kept_shape(const Shape& x, const ReduceAttributes& a) {
  Shape out = x;
  for (int d = 0; d < x.rank(); ++d)
    if (a.has(d)) out[d] = 1;
  return out;
}

View with_kept_dims(const View& out, const Shape& x, const ReduceAttributes& a) {
  View v = out;
  v.shape = kept_shape(x, a);
  v.strides = contiguous_strides(v.shape);
  return v;
}

Tensor expand_to(const Tensor& reduced, const Shape& x, const ReduceAttributes& a) {
  Tensor d = detail::dense(reduced);
  View v = with_kept_dims(d.impl()->view, x, a);
  for (int i = 0; i < x.rank(); ++i)
    if (a.has(i)) v.strides[i] = 0;
  v.shape = x;
  return detail::make_view(d, v, x, nullptr);
}

Rule reduced_rule(const RuleCall& call, bool whole) {
  const auto& a = call.attributes.as<ReduceAttributes>();
  Rule rule;
  int rank = call.in[0].shape.rank();
  rule.in = {plain_letters(rank)};
  rule.out.emplace_back();
  for (int d = 0; d < rank; ++d) {
    if (!a.has(d))
      rule.out[0].push_back({dim_letter(d)});
    else if (a.keepdim)
      rule.out[0].push_back({});
    if (a.has(d)) (whole ? rule.whole : rule.reduced).push_back(dim_letter(d));
  }
  if (!whole) rule.linear = {1};
  for (size_t o = 1; o < call.out.size(); ++o) rule.out.push_back(rule.out[0]);
  return rule;
}

ReduceAttributes attributes_of(const char* op, const Tensor& x, const Dims& dims, bool keepdim) {
  ReduceAttributes a;
  for (int64_t d : wrap_dims(op, dims, x.type())) a.mask |= static_cast<uint8_t>(1u << d);
  a.keepdim = keepdim;
  return a;
}

std::vector<Sample> samples(Fill fill, bool gradient, bool integers, bool empty) {
  std::vector<Sample> out;
  auto add = [&](const Shape& shape, std::initializer_list<int> dims, bool keepdim) {
    ReduceAttributes a;
    for (int d : dims) a.mask |= static_cast<uint8_t>(1u << d);
    a.keepdim = keepdim;
    out.push_back({.inputs = {{shape, fill}},
                   .attributes = sample_attributes(a),
                   .has_gradient = gradient,
                   .integers = integers});
  };
  add({5, 7}, {0}, false);
  add({5, 7}, {1}, true);
  add({5, 7}, {0, 1}, false);
  add({2, 3, 4}, {1}, false);
  add({2, 3, 4}, {0, 2}, true);
  add({1, 4}, {0}, false);
  add({}, {}, false);
  if (empty) add({0, 3}, {0}, false);
  add({0, 3}, {1}, false);
  return out;
}

}  // namespace reduce_op

using namespace reduce_op;

namespace ops {
namespace {

void infer_sum(const InferCall& call, std::span<OutputType> out) {
  DType t = call.dtype(0);
  out[0] = {is_floating(t) ? t : DType::i64, reduced_shape(call.shape(0), call.attributes.as<ReduceAttributes>())};
}
void infer_mean(const InferCall& call, std::span<OutputType> out) {
  require_floating("mean", *call.in[0]);
  infer_sum(call, out);
}
void infer_prod(const InferCall& call, std::span<OutputType> out) { infer_sum(call, out); }
void infer_logical(const InferCall& call, std::span<OutputType> out) {
  out[0] = {DType::boolean, reduced_shape(call.shape(0), call.attributes.as<ReduceAttributes>())};
}

Rule sum_rule(const RuleCall& call) { return reduced_rule(call, false); }
Rule whole_rule(const RuleCall& call) { return reduced_rule(call, true); }

template <cpu::Reduce K>
void reduce_kernel(const KernelCall& c) {
  cpu::reduce(K, *c.in[0], with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>()));
}

template <cpu::Reduce K>
int64_t reduce_kernel_scratch(const KernelCall& c) {
  return cpu::reduce_scratch(K, *c.in[0],
                             with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>()));
}

// The sum in the accumulation dtype, scaled, then rounded once: a mean of halves must not overflow on the way.
void mean_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  View out = with_kept_dims(*c.out[0], c.in[0]->shape, a);
  Tensor total = detail::make_tensor(out.shape, accumulation(out.dtype), Device::Cpu);
  cpu::reduce(cpu::Reduce::sum, *c.in[0], total.impl()->view);
  const View* in[] = {&total.impl()->view};
  cpu::pointwise(Pointwise::mul_scalar, in, out, {a.scale, 0});
}

int64_t mean_scratch(const KernelCall& c) {
  View out = with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>());
  View total{nullptr, accumulation(out.dtype), out.shape, contiguous_strides(out.shape)};
  return out.numel() * size_of(total.dtype) + cpu::reduce_scratch(cpu::Reduce::sum, *c.in[0], total);
}

void sum_backward(const BackwardCall& c, std::span<Tensor> out) {
  Tensor g = expand_to(c.grads[0], c.input_shape(0), c.attributes.as<ReduceAttributes>());
  out[0] = g.dtype() == c.input_dtype(0) ? g : detail::dense_copy(g, c.input_dtype(0));
}
void mean_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  Tensor g = pointwise_op::call<Pointwise::mul_scalar>({&c.grads[0]}, PointwiseParams{a.scale, 0});
  out[0] = expand_to(g, c.input_shape(0), a);
}

Cost reduce_cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  double n = static_cast<double>(in[0]->numel());
  return {n, n * static_cast<double>(size_of(in[0]->dtype))};
}

std::vector<Sample> mean_samples() {
  std::vector<Sample> out = samples(Fill::normal, true, false, false);
  for (Sample& s : out) {
    ReduceAttributes a;
    std::memcpy(&a, s.attributes.data(), sizeof a);
    const Shape& x = s.inputs[0].shape;
    a.scale =
        1.0 / static_cast<double>(std::max<int64_t>(1, numel(x) / std::max<int64_t>(1, numel(reduced_shape(x, a)))));
    s.attributes = sample_attributes(a);
  }
  return out;
}

template <cpu::Reduce K, dist::ReduceOp R>
void logical_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu = reduce_kernel<K>, .cpu_scratch = reduce_kernel_scratch<K>};
  const auto& a = attributes.as<ReduceAttributes>();
  out[0] = reduce_split(kernel, K == cpu::Reduce::any ? "any" : "all", *in[0], a, DType::boolean, R);
}

}  // namespace

extern const OpDef sum{
    .name = "sum",
    .infer = infer_sum,
    .layout = sum_rule,
    .key_bytes = ReduceAttributes::kKey,
    .kernel = {.cpu = reduce_kernel<cpu::Reduce::sum>, .cpu_scratch = reduce_kernel_scratch<cpu::Reduce::sum>},
    .backward = sum_backward,
    .cost = reduce_cost,
    .samples = [] { return samples(Fill::normal, true, true, true); },
    .precision = Precision::f32};
extern const OpDef mean{.name = "mean",
                        .infer = infer_mean,
                        .layout = sum_rule,
                        .key_bytes = ReduceAttributes::kKey,
                        .kernel = {.cpu = mean_kernel, .cpu_scratch = mean_scratch},
                        .backward = mean_backward,
                        .cost = reduce_cost,
                        .samples = mean_samples,
                        .precision = Precision::f32};
extern const OpDef prod{
    .name = "prod",
    .infer = infer_prod,
    .layout = whole_rule,
    .key_bytes = ReduceAttributes::kKey,
    .kernel = {.cpu = reduce_kernel<cpu::Reduce::prod>, .cpu_scratch = reduce_kernel_scratch<cpu::Reduce::prod>},
    .cost = reduce_cost,
    .samples = [] { return samples(Fill::positive, false, true, true); },
    .precision = Precision::f32};
extern const OpDef any{
    .name = "any",
    .infer = infer_logical,
    .layout = whole_rule,
    .key_bytes = ReduceAttributes::kKey,
    .kernel = {.cpu = reduce_kernel<cpu::Reduce::any>, .cpu_scratch = reduce_kernel_scratch<cpu::Reduce::any>},
    .decompose = logical_decompose<cpu::Reduce::any, dist::ReduceOp::max>,
    .cost = reduce_cost,
    .samples = [] { return samples(Fill::normal, false, true, true); }};
extern const OpDef all{
    .name = "all",
    .infer = infer_logical,
    .layout = whole_rule,
    .key_bytes = ReduceAttributes::kKey,
    .kernel = {.cpu = reduce_kernel<cpu::Reduce::all>, .cpu_scratch = reduce_kernel_scratch<cpu::Reduce::all>},
    .decompose = logical_decompose<cpu::Reduce::all, dist::ReduceOp::min>,
    .cost = reduce_cost,
    .samples = [] { return samples(Fill::normal, false, true, true); }};

}  // namespace ops

namespace {

double reduced_count(const Tensor& x, const ReduceAttributes& a) {
  double n = 1;
  for (int d = 0; d < x.dim(); ++d)
    if (a.has(d)) n *= static_cast<double>(x.shape()[d]);
  return n;
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::sum, attributes_of("sum", x, dims, keepdim), x);
}
Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::prod, attributes_of("prod", x, dims, keepdim), x);
}
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::any, attributes_of("any", x, dims, keepdim), x);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::all, attributes_of("all", x, dims, keepdim), x);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  ReduceAttributes a = attributes_of("mean", x, dims, keepdim);
  a.scale = 1.0 / reduced_count(x, a);  // of nothing: 0 * inf = NaN
  return apply(ops::mean, a, x);
}

Tensor var(const Tensor& x, const Dims& dims, int64_t correction, bool keepdim) {
  ReduceAttributes a = attributes_of("var", x, dims, keepdim);
  double n = reduced_count(x, a);
  Tensor centred = x - mean(x, dims, true);
  return mean(square(centred), dims, keepdim) * (n / std::max(0.0, n - static_cast<double>(correction)));
}

// sqrt (or a root) of a sum s >= 0 whose gradient at 0 is 0, not 0/0.
static Tensor root(const Tensor& s, double exponent) {
  Tensor zero = eq(s, 0.0);
  Tensor safe = masked_fill(s, zero, 1.0);
  return masked_fill(exponent == 0.5 ? sqrt(safe) : pow(safe, exponent), zero, 0.0);
}

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  require_floating("norm", x);
  if (!(p > 0)) throw ValueError(op_message("norm", "p is " + std::to_string(p) + "; it must be positive or infinity"));
  if (p == 1) return sum(abs(x), dims, keepdim);
  if (p == 2) return root(sum(square(x), dims, keepdim), 0.5);
  if (std::isinf(p)) return amax(abs(x), dims, keepdim);
  return root(sum(pow(abs(x), p), dims, keepdim), 1.0 / p);
}

}  // namespace cleave
