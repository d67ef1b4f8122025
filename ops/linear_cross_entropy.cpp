#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/index.h>
#include <cleave/core/cpu/linear_cross_entropy.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/internal/class_loss.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/join.h>
#include <cleave/ops/linear_cross_entropy.h>
#include <cleave/ops/op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

#include <algorithm>

namespace cleave {
namespace ops {

extern const OpDef linear_cross_entropy_terms;

namespace {

struct LinearTermAttributes {
  int64_t blocks;  ///< of classes, one on each rank that splits them: size of dim 0 of the output; 0: whole, size 1
  int64_t terms;   ///< 2, or 3 with the sum for label smoothing
  int64_t ignore_index, chunk;
  int64_t classes, first;  ///< global count, and this rank's first
};
constexpr size_t kKey = 2 * sizeof(int64_t);

DType term_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

// For each block of classes and each row of x: logsumexp of the logits, the target's logit (0 if in another block), the
// sum of the logits. [blocks, terms, rows...].
void infer(const InferCall& call, std::span<OutputType> out) {
  const char* op = call.op.name;
  const auto& a = call.attributes.as<LinearTermAttributes>();
  const Tensor &x = *call.in[0], &w = *call.in[1], &target = *call.in[2];
  require_floating(op, x, "the hidden states");
  if (x.dtype() != w.dtype())
    throw DTypeError(op_message(
        op, describe(x.type()) + " and the weight " + describe(w.type()) + " have different dtypes; cast one of them"));
  if (target.dtype() != DType::i64 && target.dtype() != DType::i32)
    throw DTypeError(
        op_message(op, "the target is " + describe(target.type()) + " and must be i64 or i32; cast it first"));
  if (x.dim() < 1 || w.dim() != 2 || x.shape().back() != w.shape()[1])
    throw ShapeError(
        op_message(op, describe(x.type()) + " must be [..., C] and the weight [V, C], not " + describe(w.type())));
  Shape rows = x.shape();
  rows.erase(x.dim() - 1);
  if (!(rows == target.shape()))
    throw ShapeError(op_message(op, "for hidden states " + describe(x.type()) + " the target must have shape " +
                                        to_string(rows) + ", not " + describe(target.type())));
  rows.insert(0, a.terms);
  rows.insert(0, std::max<int64_t>(1, a.blocks));
  out[0] = {term_type(x.dtype()), rows};
}

Rule rule_of(const RuleCall& call) {
  bool split = call.attributes.as<LinearTermAttributes>().blocks > 0;
  int rows = call.in[2].shape.rank();
  OperandLetters target = plain_letters(rows), x = target, out{{}, {}};
  Letter v = dim_letter(rows);
  if (split) out[0] = {v};
  x.push_back({});
  out.insert(out.end(), target.begin(), target.end());
  Rule rule;
  rule.in = {x, {{v}, {}}, target};
  rule.out = {out};
  if (!split) rule.whole = {v};
  return rule;
}

void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<LinearTermAttributes*>(attributes);
  a.classes = call.in[1]->impl()->global[0];
  a.first = call.in_offset(1)[0];
}

int64_t chunk_rows(const LinearTermAttributes& a, int64_t rows, int64_t classes) {
  int64_t n = a.chunk > 0 ? a.chunk : std::max<int64_t>(16, (int64_t{4} << 20) / std::max<int64_t>(1, classes));
  return std::min(n, rows);
}

// A block as a dense matrix; `keep` holds the copy that this may take.
View matrix(Device device, const View& x, int64_t rows, int64_t columns, DType dtype, Tensor& keep) {
  View dense = x;
  if (!x.contiguous() || x.dtype != dtype) {
    keep = detail::make_tensor(x.shape, dtype, device);
    detail::copy_view(device, x, keep.impl()->view);
    dense = keep.impl()->view;
  }
  dense.shape = {rows, columns};
  dense.strides = contiguous_strides(dense.shape);
  return dense;
}

/// The blocks as dense matrices, and room for the logits of a chunk.
struct Blocks {
  int64_t rows, columns, classes, chunk;
  Tensor kept[3], logits;
  View x, w, target;
  Blocks(Device device, const View& x_, const View& w_, const View& target_, const LinearTermAttributes& a)
      : rows(target_.numel()), columns(w_.shape[1]), classes(w_.shape[0]), chunk(chunk_rows(a, rows, classes)) {
    x = matrix(device, x_, rows, columns, x_.dtype, kept[0]);
    w = matrix(device, w_, classes, columns, w_.dtype, kept[1]);
    target = matrix(device, target_, rows, 1, DType::i64, kept[2]);
    target.shape = {rows};
    target.strides = {1};
    logits = detail::make_tensor({chunk, classes}, term_type(x.dtype), device);
  }
};

void forward_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<LinearTermAttributes>();
  cpu::check_indices("linear_cross_entropy", *c.in[2], a.classes, a.ignore_index);
  if (c.out[0]->numel() == 0) return;
  Blocks b(Device::Cpu, *c.in[0], *c.in[1], *c.in[2], a);
  Tensor none;
  cpu::linear_cross_entropy(b.x, b.w, b.target, a.first, b.logits.impl()->view,
                            matrix(Device::Cpu, *c.out[0], a.terms, b.rows, c.out[0]->dtype, none));
}

// The blocks, made without data.
int64_t forward_scratch(const KernelCall& c) {
  int64_t check = cpu::index_scratch(*c.in[2]);
  if (c.out[0]->numel() == 0) return check;
  Blocks b(Device::Meta, *c.in[0], *c.in[1], *c.in[2], c.attributes.as<LinearTermAttributes>());
  int64_t bytes = cpu::linear_cross_entropy_scratch(b.x, b.w, b.logits.impl()->view);
  for (const Tensor& held : {b.kept[0], b.kept[1], b.kept[2], b.logits})
    if (held.defined()) bytes += numel(held) * size_of(held.dtype());
  return std::max(check, bytes);
}

// in: x, w, target, terms, dterms as dense matrices; out: dx and dw (empty where not wanted), then room.
void backward_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<LinearTermAttributes>();
  const View *dx = c.out[0]->numel() ? c.out[0] : nullptr, *dw = c.out[1]->numel() ? c.out[1] : nullptr;
  if (c.in[0]->shape[0] == 0) return;
  cpu::linear_cross_entropy_backward(*c.in[0], *c.in[1], *c.in[2], *c.in[3], *c.in[4], a.first, *c.out[2], *c.out[3],
                                     *c.out[4], dx, dw);
}

int64_t backward_scratch(const KernelCall& c) {
  if (c.in[0]->shape[0] == 0) return 0;
  return cpu::linear_cross_entropy_backward_scratch(*c.in[0], *c.in[1], *c.out[2], *c.out[3],
                                                    c.out[0]->numel() ? c.out[0] : nullptr);
}

Tensor flat_room(bool wanted, int64_t rows, int64_t columns, DType dtype, Device device) {
  return detail::make_tensor(wanted ? Shape{rows, columns} : Shape{0}, dtype, device);
}
Tensor shaped(const Tensor& x, const Shape& shape) {
  View v = x.impl()->view;
  v.shape = shape;
  v.strides = contiguous_strides(shape);
  return detail::make_view(x, v, shape, nullptr);
}

void backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu = backward_kernel, .cpu_scratch = backward_scratch};
  const auto& a = c.attributes.as<LinearTermAttributes>();
  Device device = c.inputs[0].device();
  Blocks b(device, detail::elements(c.inputs[0]), detail::elements(c.inputs[1]), detail::elements(c.inputs[2]), a);
  DType sums = term_type(b.x.dtype);
  Tensor kept[2];
  View terms = matrix(device, detail::elements(c.outputs[0]), a.terms, b.rows, sums, kept[0]),
       dterms = matrix(device, detail::elements(c.grads[0]), a.terms, b.rows, sums, kept[1]);
  bool half = is_half(b.x.dtype);
  Tensor dx = flat_room(c.needs[0], b.rows, b.columns, b.x.dtype, device),
         dw = flat_room(c.needs[1], b.classes, b.columns, sums, device),
         halves = flat_room(half && c.needs[0], b.chunk, b.classes, b.x.dtype, device),
         rows = flat_room(half && c.needs[1], b.chunk, b.columns, sums, device);
  if (b.rows == 0) detail::fill_view(device, dw.impl()->view, 0.0);
  const View *in[] = {&b.x, &b.w, &b.target, &terms, &dterms},
             *to[] = {&dx.impl()->view, &dw.impl()->view, &b.logits.impl()->view, &halves.impl()->view,
                      &rows.impl()->view};
  launch(kernel, device, "linear_cross_entropy", {in, to, c.attributes});
  if (c.needs[0]) out[0] = shaped(dx, c.input_shape(0));
  if (c.needs[1]) out[1] = c.gradient_dtype(1) == sums ? dw : detail::dense_copy(dw, c.input_dtype(1));
}

// Classes split over ranks: each has the terms of its block, and these are put together as its logits would be.
void decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  auto a = attributes.as<LinearTermAttributes>();
  const dist::LayoutData& w = *in[1]->impl()->layout;
  a.blocks = w.mesh->size_of(w.dims[0].mask());
  Tensor terms = apply(linear_cross_entropy_terms, a, *in[0], *in[1], *in[2]);
  Tensor lse = slice(terms, 1, 0, 1), shift;
  {
    NoGrad off;
    shift = amax(lse, 0, true);
  }
  Tensor sums = sum(cat({exp(lse - shift), slice(terms, 1, 1, a.terms)}, 1), 0, true);
  sums = class_loss::resolved(sums, "linear_cross_entropy");
  out[0] = cat({log(slice(sums, 1, 0, 1)) + shift, slice(sums, 1, 1, a.terms)}, 1);
}

double products(const View& x, const View& w) {
  return 2 * static_cast<double>(x.numel()) * static_cast<double>(w.shape[0]);
}
double bytes_of(const View& x, const View& w) {
  return static_cast<double>((x.numel() + w.numel()) * size_of(x.dtype));
}
Cost cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  return {products(*in[0], *in[1]), bytes_of(*in[0], *in[1])};
}
Cost backward_cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes&) {
  double n = 1 + (out[0]->numel() ? 1 : 0) + (out[1]->numel() ? 1 : 0);
  return {n * products(*in[0], *in[1]), n * bytes_of(*in[0], *in[1])};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  auto add = [&](const Shape& x, int64_t classes, int64_t terms, int64_t chunk) {
    Shape rows = x;
    rows.erase(x.rank() - 1);
    out.push_back({.inputs = {{x}, {{classes, x.back()}}, {rows, Fill::index, classes}},
                   .attributes = sample_attributes(LinearTermAttributes{0, terms, -100, chunk, classes, 0})});
  };
  add({5, 4}, 7, 2, 2);
  add({5, 4}, 7, 3, 0);
  add({2, 3, 2}, 5, 3, 4);
  add({3}, 5, 2, 0);
  add({0, 4}, 5, 2, 0);
  add({2, 0}, 3, 3, 1);
  return out;
}

}  // namespace

extern const OpDef linear_cross_entropy_terms{.name = "linear_cross_entropy",
                                              .infer = infer,
                                              .layout = rule_of,
                                              .key_bytes = kKey,
                                              .localize = locate,
                                              .kernel = {.cpu = forward_kernel, .cpu_scratch = forward_scratch},
                                              .backward = backward,
                                              .saves = {.inputs = 0b111, .outputs = 0b1},
                                              .decompose = decompose,
                                              .cost = cost,
                                              .backward_cost = backward_cost,
                                              .samples = samples,
                                              .precision = Precision::low};

}  // namespace ops

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options) {
  constexpr const char* op = "linear_cross_entropy";
  const CrossEntropyOptions loss{options.ignore_index, options.reduction, options.label_smoothing, options.z_loss};
  class_loss::check(op, loss);
  if (options.chunk < 0)
    throw ValueError(op_message(
        op, "chunk is " + std::to_string(options.chunk) + "; it must be a number of rows, or 0 to have it chosen"));
  bool smooth = options.label_smoothing > 0;
  ops::LinearTermAttributes a{0, smooth ? 3 : 2, options.ignore_index, options.chunk, 0, 0};
  Tensor terms = squeeze(apply(ops::linear_cross_entropy_terms, a, x, weight, target), 0);
  return class_loss::of_terms(select(terms, 0, 0), select(terms, 0, 1), smooth ? select(terms, 0, 2) : Tensor(),
                              weight.shape()[0], target, loss);
}

}  // namespace cleave
