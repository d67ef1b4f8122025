#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/primitives.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/join.h>
#include <cleave/ops/op.h>
#include <cleave/ops/view.h>

namespace cleave {
namespace ops {
namespace {

struct CatAttributes {
  int64_t dim;
};

void infer_cat(const InferCall& call, std::span<OutputType> out) {
  int64_t dim = call.attributes.as<CatAttributes>().dim;
  out[0] = {call.dtype(0), call.shape(0)};
  for (size_t i = 1; i < call.in.size(); ++i) {
    Shape a = call.shape(i), b = call.shape(0);
    bool fits = a.rank() == b.rank();
    if (fits) {
      out[0].shape[dim] += a[dim];
      a[dim] = b[dim];
      fits = a == b;
    }
    if (!fits)
      throw ShapeError(op_message("cat", describe(call.in[0]->type()) + " and " + describe(call.in[i]->type()) +
                                             " differ in other dims than dim " + std::to_string(dim)));
  }
}

// The joined dim has no letter: its pieces would not be balanced blocks of the whole.
Rule cat_rule(const RuleCall& call) {
  Rule rule;
  OperandLetters letters = plain_letters(call.in[0].shape.rank());
  letters[static_cast<size_t>(call.attributes.as<CatAttributes>().dim)] = {};
  rule.in.assign(call.in.size(), letters);
  rule.out = {letters};
  if (call.in.size() <= 32) rule.linear = {call.in.size() == 32 ? ~0u : (1u << call.in.size()) - 1};
  return rule;
}

View piece(const View& whole, int64_t dim, int64_t at, const Shape& shape) {
  Shape offset(shape.rank(), 0);
  offset[dim] = at;
  return detail::sub_view(whole, offset, shape);
}

// Calls f(x, its piece of the output) for every input.
template <class F>
void for_pieces(const KernelCall& c, F&& f) {
  int64_t dim = c.attributes.as<CatAttributes>().dim, at = 0;
  for (const View* x : c.in) {
    f(*x, piece(*c.out[0], dim, at, x->shape));
    at += x->shape[dim];
  }
}
void cat_kernel(const KernelCall& c) {
  for_pieces(c, [](const View& x, const View& to) { cpu::copy(x, to); });
}
int64_t cat_scratch(const KernelCall& c) {
  int64_t most = 0;
  for_pieces(c, [&](const View& x, const View& to) { most = std::max(most, cpu::copy_scratch(x, to)); });
  return most;
}

void cat_backward(const BackwardCall& c, std::span<Tensor> out) {
  int64_t dim = c.attributes.as<CatAttributes>().dim, at = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    View v = piece(c.grads[0].impl()->view, dim, at, c.input_shape(i));
    if (c.needs[i]) out[i] = detail::make_view(c.grads[0], v, v.shape, nullptr);
    at += c.input_shape(i)[dim];
  }
}

std::vector<Sample> cat_samples() {
  std::vector<Sample> out;
  auto add = [&](std::vector<Shape> shapes, int64_t dim) {
    Sample s{.inputs = {}, .attributes = sample_attributes(CatAttributes{dim}), .integers = true};
    for (const Shape& shape : shapes) s.inputs.push_back({shape});
    out.push_back(s);
  };
  add({{5, 2}, {5, 3}}, 1);
  add({{2, 3}, {1, 3}, {4, 3}}, 0);
  add({{2, 3, 4}, {2, 1, 4}}, 1);
  add({{0, 3}, {2, 3}}, 0);
  add({{5, 7}}, 0);
  return out;
}

struct PadAttributes {
  int64_t dim, before, after;
  double value;
};

void infer_pad(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<PadAttributes>();
  out[0] = {call.dtype(0), call.shape(0)};
  out[0].shape[a.dim] += a.before + a.after;
}

Rule pad_rule(const RuleCall& call) {
  const auto& a = call.attributes.as<PadAttributes>();
  Rule rule;
  rule.in = {plain_letters(call.in[0].shape.rank())};
  rule.in[0][static_cast<size_t>(a.dim)] = {};
  rule.out = rule.in;
  if (a.value == 0) rule.linear = {1};
  return rule;
}

void pad_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<PadAttributes>();
  Shape edge = c.out[0]->shape;
  edge[a.dim] = a.before;
  cpu::fill(piece(*c.out[0], a.dim, 0, edge), a.value);
  edge[a.dim] = a.after;
  cpu::fill(piece(*c.out[0], a.dim, a.before + c.in[0]->shape[a.dim], edge), a.value);
  cpu::copy(*c.in[0], piece(*c.out[0], a.dim, a.before, c.in[0]->shape));
}

void pad_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<PadAttributes>();
  View v = piece(c.grads[0].impl()->view, a.dim, a.before, c.input_shape(0));
  out[0] = detail::make_view(c.grads[0], v, v.shape, nullptr);
}

std::vector<Sample> pad_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, a] : {std::pair<Shape, PadAttributes>{{5, 7}, {0, 1, 2, 0.0}},
                                 {{5, 7}, {1, 0, 3, 1.5}},
                                 {{2, 3, 4}, {1, 2, 0, 0.0}},
                                 {{0, 3}, {0, 1, 1, 2.0}}})
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(a), .integers = a.value == 0});
  return out;
}

}  // namespace

extern const OpDef cat{.name = "cat",
                       .infer = infer_cat,
                       .layout = cat_rule,
                       .key_bytes = sizeof(CatAttributes),
                       .kernel = {.cpu = cat_kernel, .cpu_scratch = cat_scratch},
                       .backward = cat_backward,
                       .cost = pointwise_op::cost,
                       .samples = cat_samples,
                       .precision = Precision::widest};
extern const OpDef pad{.name = "pad",
                       .infer = infer_pad,
                       .layout = pad_rule,
                       .key_bytes = sizeof(PadAttributes),
                       .kernel = {.cpu = pad_kernel},
                       .backward = pad_backward,
                       .cost = pointwise_op::cost,
                       .samples = pad_samples};

}  // namespace ops

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  if (tensors.empty()) throw ValueError(op_message("cat", "there are no tensors to join"));
  int64_t d = wrap_dim("cat", dim, tensors[0].type());
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) dtype = promote(dtype, t.dtype());
  std::vector<Tensor> same;
  for (const Tensor& t : tensors) same.push_back(cast(t, dtype));
  return apply_list(ops::cat, ops::CatAttributes{d}, same);
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  if (tensors.empty()) throw ValueError(op_message("stack", "there are no tensors to join"));
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) {
    if (!(t.shape() == tensors[0].shape()))
      throw ShapeError(
          op_message("stack", describe(tensors[0].type()) + " and " + describe(t.type()) + " have different shapes"));
    rows.push_back(unsqueeze(t, dim));
  }
  return cat(rows, dim < 0 ? dim + tensors[0].dim() + 1 : dim);
}

Tensor pad(const Tensor& x, int64_t dim, int64_t before, int64_t after, double value) {
  int64_t d = wrap_dim("pad", dim, x.type());
  if (before < 0 || after < 0)
    throw ValueError(op_message(
        "pad", "a width is negative: " + std::to_string(before) + ", " + std::to_string(after) + "; use slice to cut"));
  return apply(ops::pad, ops::PadAttributes{d, before, after, value}, x);
}

}  // namespace cleave
