// softmax, log_softmax, logsumexp.
#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/rows.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/internal/reduce_op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/softmax.h>
#include <cleave/ops/unary.h>

#include <bit>

namespace cleave {

using reduce_op::ReduceAttributes;

namespace ops {
namespace {

struct SoftmaxAttributes {
  int64_t dim;
};

void infer_softmax(const InferCall& call, std::span<OutputType> out) {
  require_floating(call.op.name, *call.in[0]);
  out[0] = {call.dtype(0), call.shape(0)};
}

Rule softmax_rule(const RuleCall& call) {
  Rule rule;
  rule.in = {plain_letters(call.in[0].shape.rank())};
  rule.out = rule.in;
  rule.whole = {dim_letter(call.attributes.as<SoftmaxAttributes>().dim)};
  return rule;
}

template <bool Log>
void softmax_kernel(const KernelCall& c) {
  cpu::softmax(*c.in[0], static_cast<int>(c.attributes.as<SoftmaxAttributes>().dim), Log, *c.out[0]);
}
template <bool Log>
void softmax_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu = [](const KernelCall& k) {
    cpu::softmax_backward(*k.in[0], *k.in[1], static_cast<int>(k.attributes.as<SoftmaxAttributes>().dim), Log,
                          *k.out[0]);
  }};
  out[0] =
      run_kernel(kernel, c.op.name, {&c.outputs[0], &c.grads[0]}, c.input_shape(0), c.input_dtype(0), c.attributes);
}

// x less its maximum over `dims`, and that maximum, in f32 for the halves. The shift cancels in value and gradient; it
// is 0 where the maximum is infinite or there is none.
struct Shifted {
  Tensor x, by;
};
Shifted shifted(const Tensor& given, const Dims& dims) {
  Tensor x = cast(given, accumulation(given.dtype()));
  for (int d = 0; d < x.dim(); ++d)
    if (x.size(d) == 0 && (dims.empty() || wrap_dims("softmax", dims, x.type()).contains(d))) return {x, {}};
  Tensor by;
  {
    NoGrad off;
    Tensor m = amax(x, dims, true);
    by = masked_fill(m, logical_not(isfinite(m)), 0.0);
  }
  return {x - by, by};
}

// Taped as local kernels and two small all-reduces; the gradients follow from the tape.
void softmax_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  int64_t dim = attributes.as<SoftmaxAttributes>().dim;
  Tensor e = exp(shifted(*in[0], dim).x);
  out[0] = cast(e / sum(e, dim, true), in[0]->dtype());
}
void log_softmax_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  int64_t dim = attributes.as<SoftmaxAttributes>().dim;
  Tensor x = shifted(*in[0], dim).x;
  out[0] = cast(x - log(sum(exp(x), dim, true)), in[0]->dtype());
}

Cost row_cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  double n = static_cast<double>(in[0]->numel());
  return {5 * n, 2 * n * static_cast<double>(size_of(in[0]->dtype))};
}

std::vector<Sample> softmax_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, dim] :
       {std::pair<Shape, int64_t>{{5, 7}, 1}, {{5, 7}, 0}, {{2, 3, 4}, 1}, {{7}, 0}, {{0, 3}, 1}, {{3, 1}, 1}})
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(SoftmaxAttributes{dim})});
  return out;
}

// logsumexp over one dim.

void infer_logsumexp(const InferCall& call, std::span<OutputType> out) {
  require_floating("logsumexp", *call.in[0]);
  out[0] = {call.dtype(0), reduce_op::reduced_shape(call.shape(0), call.attributes.as<ReduceAttributes>())};
}
Rule logsumexp_rule(const RuleCall& call) { return reduce_op::reduced_rule(call, true); }
int only_dim(const ReduceAttributes& a) { return std::countr_zero(static_cast<unsigned>(a.mask)); }

void logsumexp_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  cpu::logsumexp(*c.in[0], only_dim(a), reduce_op::with_kept_dims(*c.out[0], c.in[0]->shape, a));
}
void logsumexp_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  Tensor y = reduce_op::expand_to(c.outputs[0], c.input_shape(0), a),
         g = reduce_op::expand_to(c.grads[0], c.input_shape(0), a);
  Tensor less = pointwise_op::call<Pointwise::sub>({&c.inputs[0], &y});
  Tensor p = pointwise_op::call<Pointwise::exp>({&less});
  out[0] = pointwise_op::call<Pointwise::mul>({&p, &g});
}
Tensor logsumexp_of(const Tensor& x, const Dims& dims, bool keepdim) {
  Shifted s = shifted(x, dims);
  Tensor y = log(sum(exp(s.x), dims, true));
  if (s.by.defined()) y = y + s.by;
  return cast(keepdim ? y : sum(y, dims, false), x.dtype());  // the sum drops dims of size 1
}
void logsumexp_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  const auto& a = attributes.as<ReduceAttributes>();
  out[0] = logsumexp_of(*in[0], only_dim(a), a.keepdim);
}
std::vector<Sample> logsumexp_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, dim] :
       {std::pair<Shape, int>{{5, 7}, 1}, {{5, 7}, 0}, {{2, 3, 4}, 1}, {{7}, 0}, {{0, 3}, 1}}) {
    ReduceAttributes a;
    a.mask = static_cast<uint8_t>(1 << dim);
    a.keepdim = dim == 0;
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(a)});
  }
  return out;
}

}  // namespace

extern const OpDef softmax{.name = "softmax",
                           .infer = infer_softmax,
                           .layout = softmax_rule,
                           .key_bytes = sizeof(SoftmaxAttributes),
                           .kernel = {.cpu = softmax_kernel<false>},
                           .backward = softmax_backward<false>,
                           .saves = {.outputs = 1},
                           .decompose = softmax_decompose,
                           .cost = row_cost,
                           .samples = softmax_samples,
                           .precision = Precision::f32};
extern const OpDef log_softmax{.name = "log_softmax",
                               .infer = infer_softmax,
                               .layout = softmax_rule,
                               .key_bytes = sizeof(SoftmaxAttributes),
                               .kernel = {.cpu = softmax_kernel<true>},
                               .backward = softmax_backward<true>,
                               .saves = {.outputs = 1},
                               .decompose = log_softmax_decompose,
                               .cost = row_cost,
                               .samples = softmax_samples,
                               .precision = Precision::f32};
extern const OpDef logsumexp{.name = "logsumexp",
                             .infer = infer_logsumexp,
                             .layout = logsumexp_rule,
                             .key_bytes = ReduceAttributes::kKey,
                             .kernel = {.cpu = logsumexp_kernel},
                             .backward = logsumexp_backward,
                             .saves = {.inputs = 1, .outputs = 1},
                             .decompose = logsumexp_decompose,
                             .cost = row_cost,
                             .samples = logsumexp_samples,
                             .precision = Precision::f32};

}  // namespace ops

Tensor softmax(const Tensor& x, int64_t dim) {
  return apply(ops::softmax, ops::SoftmaxAttributes{wrap_dim("softmax", dim, x.type())}, x);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  return apply(ops::log_softmax, ops::SoftmaxAttributes{wrap_dim("log_softmax", dim, x.type())}, x);
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  ReduceAttributes a = reduce_op::attributes_of("logsumexp", x, dims, keepdim);
  if (std::popcount(static_cast<unsigned>(a.mask)) == 1) return apply(ops::logsumexp, a, x);
  require_floating("logsumexp", x);
  return ops::logsumexp_of(x, dims, keepdim);
}

}  // namespace cleave
