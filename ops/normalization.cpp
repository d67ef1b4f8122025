#include <cleave/core/cpu/rows.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/normalization.h>
#include <cleave/ops/op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

namespace cleave {
namespace ops {
namespace {

struct NormAttributes {
  int64_t dims;  ///< how many last dims are normalised
  double eps;
};
constexpr size_t kKey = sizeof(int64_t);

Shape rows_of(const Shape& x, int64_t dims) {
  Shape out;
  for (int64_t d = 0; d < x.rank() - dims; ++d) out.push_back(x[d]);
  return out;
}

// Outputs: y, then per row (mean and) 1/deviation, kept for the backward.
void infer_norm(const InferCall& call, std::span<OutputType> out) {
  const Tensor& x = *call.in[0];
  require_floating(call.op.name, x);
  int64_t dims = call.attributes.as<NormAttributes>().dims;
  for (size_t i = 1; i < call.in.size(); ++i) {
    if (!call.has(i)) continue;
    bool fits = call.shape(i).rank() == dims;
    for (int64_t d = 1; fits && d <= dims; ++d) fits = call.shape(i)[dims - d] == x.shape()[x.dim() - d];
    if (!fits)
      throw ShapeError(op_message(call.op.name, (i == 1 ? "the weight " : "the bias ") + describe(call.in[i]->type()) +
                                                    " does not have the normalised shape of " + describe(x.type())));
  }
  DType statistics = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  out[0] = {x.dtype(), x.shape()};
  for (size_t i = 1; i < out.size(); ++i) out[i] = {statistics, rows_of(x.shape(), dims)};
}

Rule norm_rule(const RuleCall& call) {
  int dims = static_cast<int>(call.attributes.as<NormAttributes>().dims), rank = call.in[0].shape.rank();
  Rule rule;
  OperandLetters x = plain_letters(rank), row(x.begin(), x.end() - dims), tail(x.end() - dims, x.end());
  rule.in = {x};
  for (size_t i = 1; i < call.in.size(); ++i) rule.in.push_back(call.present[i] ? tail : OperandLetters{});
  rule.out = {x};
  for (size_t i = 1; i < call.out.size(); ++i) rule.out.push_back(row);
  for (const DimLetters& d : tail) rule.whole.push_back(d[0]);
  return rule;
}

void layer_norm_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<NormAttributes>();
  cpu::layer_norm(*c.in[0], c.in[1], c.in[2], static_cast<int>(a.dims), a.eps, *c.out[0], *c.out[1], *c.out[2]);
}
void rms_norm_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<NormAttributes>();
  cpu::rms_norm(*c.in[0], c.in[1], static_cast<int>(a.dims), a.eps, *c.out[0], *c.out[1]);
}

// Of x and y; in backward of x and dy.
int64_t copies(const KernelCall& c, const View& a, const View& b) {
  int dims = static_cast<int>(c.attributes.as<NormAttributes>().dims);
  return cpu::norm_scratch(a, dims) + cpu::norm_scratch(b, dims);
}
int64_t forward_copies(const KernelCall& c) { return copies(c, *c.in[0], *c.out[0]); }
int64_t backward_copies(const KernelCall& c) { return copies(c, *c.in[0], *c.in.back()); }

const View* view_of(const Tensor& t) { return t.defined() ? &detail::elements(t) : nullptr; }

// One kernel with up to three results; views of those not needed are null.
void norm_backward(const BackwardCall& c, std::span<Tensor> out, bool layer) {
  const Tensor& g = c.grads[0];
  for (size_t i = 0; i < out.size(); ++i)
    if (c.needs[i]) out[i] = detail::make_tensor(c.input_shape(i), c.gradient_dtype(i), g.device());
  static constexpr Kernel layer_kernel{.cpu =
                                           [](const KernelCall& k) {
                                             cpu::layer_norm_backward(
                                                 *k.in[0], k.in[1], *k.in[2], *k.in[3], *k.in[4],
                                                 static_cast<int>(k.attributes.as<NormAttributes>().dims), k.out[0],
                                                 k.out[1], k.out[2]);
                                           },
                                       .cpu_scratch = backward_copies};
  static constexpr Kernel rms_kernel{
      .cpu =
          [](const KernelCall& k) {
            cpu::rms_norm_backward(*k.in[0], k.in[1], *k.in[2], *k.in[3],
                                   static_cast<int>(k.attributes.as<NormAttributes>().dims), k.out[0], k.out[1]);
          },
      .cpu_scratch = backward_copies};
  if (layer) {
    const View* in[] = {view_of(c.inputs[0]), view_of(c.inputs[1]), view_of(c.outputs[1]), view_of(c.outputs[2]),
                        view_of(g)};
    const View* results[] = {view_of(out[0]), view_of(out[1]), view_of(out[2])};
    launch(layer_kernel, g.device(), c.op.name, {in, results, c.attributes});
  } else {
    const View* in[] = {view_of(c.inputs[0]), view_of(c.inputs[1]), view_of(c.outputs[1]), view_of(g)};
    const View* results[] = {view_of(out[0]), view_of(out[1])};
    launch(rms_kernel, g.device(), c.op.name, {in, results, c.attributes});
  }
}
void layer_norm_backward(const BackwardCall& c, std::span<Tensor> out) { norm_backward(c, out, true); }
void rms_norm_backward(const BackwardCall& c, std::span<Tensor> out) { norm_backward(c, out, false); }

Dims last_dims(const Tensor& x, int64_t n) {
  Dims out;
  for (int64_t d = x.dim() - n; d < x.dim(); ++d) out.push_back(d);
  return out;
}

Tensor scaled(Tensor y, Inputs in) {
  if (in[1]->defined()) y = y * *in[1];
  return in.size() > 2 && in[2]->defined() ? y + *in[2] : y;
}

// Split features: the sums are small all-reduces. The halves compute in f32, as in the kernel. The statistics are only
// kept for the fused backward.
void layer_norm_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  const auto& a = attributes.as<NormAttributes>();
  Tensor x = cast(*in[0], accumulation(in[0]->dtype()));
  Dims dims = last_dims(x, a.dims);
  Tensor centred = x - mean(x, dims, true);
  Tensor rstd = rsqrt(mean(square(centred), dims, true) + a.eps);
  out[0] = cast(scaled(centred * rstd, in), in[0]->dtype());
}
void rms_norm_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  const auto& a = attributes.as<NormAttributes>();
  Tensor x = cast(*in[0], accumulation(in[0]->dtype()));
  Tensor rstd = rsqrt(mean(square(x), last_dims(x, a.dims), true) + a.eps);
  out[0] = cast(scaled(x * rstd, in), in[0]->dtype());
}

Cost norm_cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  double n = static_cast<double>(in[0]->numel());
  return {8 * n, 2 * n * static_cast<double>(size_of(in[0]->dtype))};
}

std::vector<Sample> norm_samples(bool bias) {
  std::vector<Sample> out;
  auto add = [&](const Shape& x, int64_t dims, bool affine) {
    Shape tail;
    for (int64_t d = x.rank() - dims; d < x.rank(); ++d) tail.push_back(x[d]);
    Sample s{.inputs = {{x}, {tail, Fill::positive, 0, true, !affine}},
             .attributes = sample_attributes(NormAttributes{dims, 1e-5})};
    if (bias) s.inputs.push_back({tail, Fill::normal, 0, true, !affine});
    out.push_back(s);
  };
  add({5, 7}, 1, true);
  add({5, 7}, 1, false);
  add({2, 3, 4}, 1, true);
  add({2, 3, 4}, 2, true);
  add({0, 4}, 1, true);
  return out;
}

}  // namespace

extern const OpDef layer_norm{.name = "layer_norm",
                              .infer = infer_norm,
                              .layout = norm_rule,
                              .key_bytes = kKey,
                              .kernel = {.cpu = layer_norm_kernel, .cpu_scratch = forward_copies},
                              .backward = layer_norm_backward,
                              .saves = {.inputs = 0b011, .outputs = 0b110},
                              .decompose = layer_norm_decompose,
                              .cost = norm_cost,
                              .samples = [] { return norm_samples(true); },
                              .outputs = 3,
                              .differentiable_outputs = 0b001,
                              .precision = Precision::f32};
extern const OpDef rms_norm{.name = "rms_norm",
                            .infer = infer_norm,
                            .layout = norm_rule,
                            .key_bytes = kKey,
                            .kernel = {.cpu = rms_norm_kernel, .cpu_scratch = forward_copies},
                            .backward = rms_norm_backward,
                            .saves = {.inputs = 0b011, .outputs = 0b010},
                            .decompose = rms_norm_decompose,
                            .cost = norm_cost,
                            .samples = [] { return norm_samples(false); },
                            .outputs = 2,
                            .differentiable_outputs = 0b001,
                            .precision = Precision::f32};

}  // namespace ops

namespace {
void require_tail(const char* op, const Tensor& x, const Shape& shape) {
  bool fits = shape.rank() >= 1 && shape.rank() <= x.dim();
  for (int d = 1; fits && d <= shape.rank(); ++d) fits = x.shape()[x.dim() - d] == shape[shape.rank() - d];
  if (!fits)
    throw ShapeError(op_message(op, describe(x.type()) + " does not end in the normalised shape " + to_string(shape)));
}
}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias, double eps) {
  require_tail("layer_norm", x, shape);
  const Tensor* in[] = {&x, &weight, &bias};
  Tensor out[3];
  dispatch(ops::layer_norm, in, ops::NormAttributes{shape.rank(), eps}, out);
  return out[0];
}

Tensor rms_norm(const Tensor& x, const Shape& shape, const Tensor& weight, double eps) {
  require_tail("rms_norm", x, shape);
  const Tensor* in[] = {&x, &weight};
  Tensor out[2];
  dispatch(ops::rms_norm, in, ops::NormAttributes{shape.rank(), eps}, out);
  return out[0];
}

}  // namespace cleave
