#include <cleave/core/cpu/attention.h>
#include <cleave/core/random.h>
#include <cleave/dist/internal/checks.h>
#include <cleave/ops/attention.h>
#include <cleave/ops/op.h>
#include <cleave/ops/view.h>

#include <algorithm>
#include <cmath>

namespace cleave {
namespace ops {
namespace {

using cpu::AttentionBlock;

// Inputs q, k, v, mask; outputs the result and the row's log-sum-exp.
void infer_attention(const InferCall& call, std::span<OutputType> out) {
  const Shape &q = call.shape(0), &v = call.shape(2);
  DType statistics = call.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
  out[0] = {call.dtype(0), {q[0], q[1], q[2], v[3]}};
  out[1] = {statistics, {q[0], q[1], q[2]}};
}

// h: key/value heads, g: query heads of one group. A split of q's heads that k and v share splits h; one that they do
// not share splits g, k and v stay whole, and the kernel finds its head from the first global number.
Rule attention_rule(const RuleCall& call) {
  Rule rule = parse_rule("b(hg)td,bhsd,bhse,....->b(hg)te,b(hg)t", call);
  if (call.present[3]) {
    const Shape& mask = call.in[3].shape;
    const DimLetters names[] = {{'b'}, {'h', 'g'}, {'t'}, {'s'}};
    OperandLetters letters;
    for (int d = 0; d < 4; ++d) letters.push_back(mask[d] == 1 && d < 2 ? DimLetters{} : names[d]);
    rule.in[3] = letters;
  }
  rule.whole = {'s', 'd'};
  if (call.in[0].shape[1] != call.in[1].shape[1]) rule.even = {'h'};
  return rule;
}

void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<AttentionBlock*>(attributes);
  Shape q = call.out_offset(0);
  a.first_batch = q[0];
  a.first_q_head = q[1];
  a.first_query = q[2];
  a.first_kv_head = call.in_offset(1)[1];
}

void attention_kernel(const KernelCall& c) {
  cpu::attention(*c.in[0], *c.in[1], *c.in[2], c.in[3], c.attributes.as<AttentionBlock>(), *c.out[0], *c.out[1]);
}

// As models project heads: [B, T, H, D], so that the output projection takes them as they lie.
Dims attention_order(size_t output) { return output == 0 ? Dims{0, 2, 1, 3} : Dims{}; }

void attention_backward(const BackwardCall& c, std::span<Tensor> out) {
  const Tensor& g = c.grads[0];
  Tensor d[3];
  for (size_t i = 0; i < 3; ++i) d[i] = make_like(c.inputs[i], c.input_dtype(i));
  static constexpr Kernel kernel{.cpu = [](const KernelCall& k) {
    cpu::attention_backward(*k.in[0], *k.in[1], *k.in[2], k.in[3], k.attributes.as<AttentionBlock>(), *k.in[4],
                            *k.in[5], *k.in[6], *k.out[0], *k.out[1], *k.out[2]);
  }};
  const Tensor* in[] = {&c.inputs[0], &c.inputs[1], &c.inputs[2], &c.inputs[3], &c.outputs[0], &c.outputs[1], &g};
  const View *views[7], *results[3];
  for (size_t i = 0; i < 7; ++i) views[i] = in[i]->defined() ? &detail::elements(*in[i]) : nullptr;
  for (size_t i = 0; i < 3; ++i) results[i] = &d[i].impl()->view;
  launch(kernel, g.device(), c.op.name, {views, results, c.attributes});
  for (size_t i = 0; i < 3; ++i)
    if (c.needs[i]) out[i] = d[i];
}

Cost attention_cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes& attributes) {
  double seen = attributes.as<AttentionBlock>().causal ? 0.5 : 1.0;
  double pairs = static_cast<double>(in[0]->numel() / std::max<int64_t>(1, in[0]->shape[3]) * in[1]->shape[2]) * seen;
  double bytes =
      static_cast<double>((in[0]->numel() + in[1]->numel() + in[2]->numel() + out[0]->numel()) * size_of(in[0]->dtype));
  return {2 * pairs * static_cast<double>(in[0]->shape[3] + in[2]->shape[3]), bytes};
}

// Five products where the forward has two.
Cost attention_backward_cost(std::span<const View* const> in, std::span<const View* const> out,
                             const Attributes& attributes) {
  Cost c = attention_cost(in, out, attributes);
  return {2.5 * c.flops, 2 * c.bytes};
}

AttentionBlock block_for(const Shape& q, const Shape& k, bool causal, double scale) {
  AttentionBlock a;
  a.scale = scale;
  a.causal = causal;
  a.group = k[1] ? q[1] / k[1] : 1;
  a.queries = q[2];
  a.heads = q[1];
  return a;
}

std::vector<Sample> attention_samples() {
  std::vector<Sample> out;
  auto add = [&](const Shape& q, const Shape& kv, bool causal, double dropout, std::optional<Shape> mask,
                 Fill fill = Fill::normal) {
    AttentionBlock a = block_for(q, kv, causal, 0.7);
    a.dropout = dropout;
    a.seed = 5;
    a.call = 2;
    out.push_back({.inputs = {{q}, {kv}, {kv}, {mask.value_or(Shape{1, 1, q[2], kv[2]}), fill, 0, false, !mask}},
                   .attributes = sample_attributes(a)});
  };
  add({2, 3, 5, 4}, {2, 3, 5, 4}, true, 0, {});
  add({2, 3, 4, 2}, {2, 3, 7, 2}, false, 0, {});
  add({1, 4, 5, 3}, {1, 2, 5, 3}, true, 0, {});
  add({2, 3, 2, 4}, {2, 1, 6, 4}, true, 0.3, {});
  add({2, 2, 3, 4}, {2, 2, 5, 4}, false, 0, Shape{2, 1, 3, 5});
  add({2, 2, 3, 4}, {2, 2, 5, 4}, false, 0, Shape{1, 2, 3, 5}, Fill::boolean);
  add({1, 6, 3, 2}, {1, 3, 3, 2}, true, 0, {});  // groups of 2 over 2 and 3 ranks
  add({1, 6, 2, 2}, {1, 2, 4, 2}, true, 0, Shape{1, 6, 2, 4});
  add({1, 1, 1, 2}, {1, 1, 1, 2}, false, 0, {});
  add({0, 2, 3, 4}, {0, 2, 3, 4}, true, 0, {});
  return out;
}

}  // namespace

extern const OpDef attention{.name = "scaled_dot_product_attention",
                             .infer = infer_attention,
                             .layout = attention_rule,
                             .localize = locate,
                             .kernel = {.cpu = attention_kernel},
                             .memory_order = attention_order,
                             .backward = attention_backward,
                             .saves = {.inputs = 0b1111, .outputs = 0b11},
                             .cost = attention_cost,
                             .backward_cost = attention_backward_cost,
                             .samples = attention_samples,
                             .outputs = 2,
                             .differentiable_outputs = 0b01,
                             .precision = Precision::low};

}  // namespace ops

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

void require_fit(const Tensor& q, const Tensor& k, const Tensor& v) {
  require_floating(kName, q, "q");
  auto types = [&] { return describe(q.type()) + ", " + describe(k.type()) + ", " + describe(v.type()); };
  if (q.dtype() != k.dtype() || q.dtype() != v.dtype())
    throw DTypeError(op_message(kName, "q, k, v are " + types() + " and must have one dtype; cast them first"));
  const Shape &a = q.shape(), &b = k.shape(), &c = v.shape();
  bool fits = a.rank() == 4 && b.rank() == 4 && c.rank() == 4 && a[0] == b[0] && b[0] == c[0] && b[1] == c[1] &&
              b[2] == c[2] && a[3] == b[3];
  if (!fits)
    throw ShapeError(
        op_message(kName, "q, k, v are " + types() +
                              "; they must be [B, H, Tq, D], [B, Hkv, Tk, D], [B, Hkv, Tk, Dv], or all without B"));
  if (b[1] == 0 ? a[1] != 0 : a[1] % b[1] != 0)
    throw ShapeError(
        op_message(kName, std::to_string(a[1]) + " q heads are no multiple of " + std::to_string(b[1]) + " k/v heads"));
}

Tensor mask_4d(const Tensor& mask, const Tensor& q, const Tensor& k) {
  if (!mask.defined()) return mask;
  if (mask.requires_grad())
    throw GradError(op_message(
        kName, "the mask requires grad, but it gets no gradient; detach() it, or add it to scores of your own"));
  if (mask.dtype() != DType::boolean && mask.dtype() != q.dtype())
    throw DTypeError(op_message(
        kName, "the mask is " + describe(mask.type()) + " and must be bool or " + std::string(to_string(q.dtype()))));
  Tensor m = mask;
  while (m.dim() < 4) m = unsqueeze(m, 0);
  const Shape& s = m.shape();
  Shape wanted{s[0] == 1 ? 1 : q.shape()[0], s[1] == 1 ? 1 : q.shape()[1], q.shape()[2], k.shape()[2]};
  return s == wanted ? m : expand(m, wanted);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  if (q.dim() == 3 && k.dim() == 3 && v.dim() == 3)
    return squeeze(scaled_dot_product_attention(unsqueeze(q, 0), unsqueeze(k, 0), unsqueeze(v, 0), options), 0);
  require_fit(q, k, v);
  if (!(options.dropout_p >= 0 && options.dropout_p < 1))
    throw ValueError(
        op_message(kName, "dropout_p is " + std::to_string(options.dropout_p) + "; it must lie in [0, 1)"));
  double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.shape()[3]))));
  cpu::AttentionBlock a = ops::block_for(q.shape(), k.shape(), options.is_causal, scale);
  if (options.dropout_p > 0) {
    detail::RandomKey key = detail::next_random_key();
    dist::detail::require_same_key(kName, key, q.impl()->layout, q.device());
    a.dropout = options.dropout_p;
    a.seed = key.seed;
    a.call = key.call;
  }
  Tensor mask = mask_4d(options.mask, q, k);
  const Tensor* in[] = {&q, &k, &v, &mask};
  Tensor out[2];
  dispatch(ops::attention, in, a, out);
  return out[0];
}

}  // namespace cleave
