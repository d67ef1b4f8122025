#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/cpu/index.h>
#include <cleave/core/cpu/rows.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/cross_entropy.h>
#include <cleave/ops/internal/class_loss.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

namespace cleave {
namespace ops {
namespace {

struct TermAttributes {
  int64_t dim;
  int64_t terms;    ///< 2, or 3 with the sum for label smoothing
  int64_t classes;  ///< global
  int64_t ignore_index;
  int64_t first;  ///< global number of this rank's first class
};
constexpr size_t kKey = 2 * sizeof(int64_t);

// Sums over the classes of each row of x, given a shift per row: exp(x - shift), x[target], x. Classes are a reduced
// letter, so that split ones leave a partial sum of a row's size: logits never move.
void infer_terms(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<TermAttributes>();
  Shape shape = call.shape(0);
  shape.erase(a.dim);
  shape.insert(0, a.terms);
  out[0] = {call.dtype(0) == DType::f64 ? DType::f64 : DType::f32, shape};
}
Rule terms_rule(const RuleCall& call) {
  size_t dim = static_cast<size_t>(call.attributes.as<TermAttributes>().dim);
  OperandLetters x = plain_letters(call.in[0].shape.rank()), shift = x, target = x, out;
  shift[dim] = {};
  target.erase(target.begin() + static_cast<std::ptrdiff_t>(dim));
  out.emplace_back();
  out.insert(out.end(), target.begin(), target.end());
  Rule rule;
  rule.reduced = x[dim];
  rule.in = {x, shift, target};
  rule.out = {out};
  return rule;
}
void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<TermAttributes*>(attributes);
  a.first = call.in_offset(0)[a.dim];
}
void terms_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<TermAttributes>();
  cpu::check_indices("cross_entropy", *c.in[2], a.classes, a.ignore_index);
  cpu::cross_entropy_terms(*c.in[0], *c.in[1], *c.in[2], static_cast<int>(a.dim), a.first, *c.out[0]);
}
int64_t terms_scratch(const KernelCall& c) { return cpu::index_scratch(*c.in[2]); }
void terms_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel kernel{.cpu = [](const KernelCall& k) {
    const auto& a = k.attributes.as<TermAttributes>();
    cpu::cross_entropy_terms_backward(*k.in[0], *k.in[1], *k.in[2], *k.in[3], static_cast<int>(a.dim), a.first,
                                      *k.out[0]);
  }};
  if (!c.needs[0]) return;
  out[0] = gradient_room(c.inputs[0], c.input_dtype(0));
  const View *in[] = {&detail::elements(c.inputs[0]), &detail::elements(c.inputs[1]), &detail::elements(c.inputs[2]),
                      &detail::elements(c.grads[0])},
             *to[] = {&out[0].impl()->view};
  launch(kernel, out[0].device(), "cross_entropy", {in, to, c.attributes});
}
Cost terms_cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  double n = static_cast<double>(in[0]->numel());
  return {4 * n, n * static_cast<double>(size_of(in[0]->dtype))};
}
std::vector<Sample> terms_samples() {
  std::vector<Sample> out;
  auto add = [&](const Shape& x, int64_t dim, int64_t terms) {
    Shape shift = x, target = x;
    shift[dim] = 1;
    target.erase(dim);
    out.push_back({.inputs = {{x}, {shift, Fill::positive, 0, false}, {target, Fill::index, x[dim]}},
                   .attributes = sample_attributes(TermAttributes{dim, terms, x[dim], -100, 0})});
  };
  add({5, 7}, 1, 2);
  add({5, 7}, 1, 3);
  add({2, 5, 3}, 1, 2);
  add({7}, 0, 3);
  add({0, 5}, 1, 2);
  return out;
}

}  // namespace

extern const OpDef cross_entropy_terms{.name = "cross_entropy",
                                       .infer = infer_terms,
                                       .layout = terms_rule,
                                       .key_bytes = kKey,
                                       .localize = locate,
                                       .kernel = {.cpu = terms_kernel, .cpu_scratch = terms_scratch},
                                       .backward = terms_backward,
                                       .saves = {.inputs = 0b111},
                                       .cost = terms_cost,
                                       .samples = terms_samples,
                                       .precision = Precision::f32};

}  // namespace ops

namespace {

int64_t class_dim(const Tensor& x, const Tensor& target) {
  require_floating("cross_entropy", x, "the logits");
  if (target.dtype() != DType::i64 && target.dtype() != DType::i32)
    throw DTypeError(op_message("cross_entropy",
                                "the target is " + describe(target.type()) + " and must be i64 or i32; cast it first"));
  int64_t dim = x.dim() == 1 ? 0 : 1;
  Shape rows = x.shape();
  if (x.dim() >= 1) rows.erase(dim);
  if (x.dim() < 1 || !(rows == target.shape()))
    throw ShapeError(op_message("cross_entropy", "the logits are " + describe(x.type()) + " with classes in dim " +
                                                     std::to_string(dim) + ", so the target must have shape " +
                                                     to_string(rows) + ", not " + describe(target.type())));
  return dim;
}

Tensor reduce_rows(const Tensor& loss, const Tensor& valid, std::string_view reduction) {
  if (reduction == "none") return loss;
  Tensor total = sum(loss);
  if (reduction == "sum") return total;
  Tensor count = cast(sum(valid), loss.dtype());
  return total / maximum(count, 1.0);
}

}  // namespace

void class_loss::check(const char* op, const CrossEntropyOptions& options) {
  if (options.reduction != "mean" && options.reduction != "sum" && options.reduction != "none")
    throw ValueError(op_message(
        op, "reduction is \"" + std::string(options.reduction) + "\"; it must be \"mean\", \"sum\" or \"none\""));
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    throw ValueError(
        op_message(op, "label_smoothing is " + std::to_string(options.label_smoothing) + "; it must lie in [0, 1]"));
}

Tensor class_loss::of_terms(const Tensor& lse, const Tensor& logit, const Tensor& total, int64_t classes,
                            const Tensor& target, const CrossEntropyOptions& options) {
  double eps = options.label_smoothing;
  Tensor loss = lse - logit;
  if (eps > 0) loss = loss * (1 - eps) + (lse - total * (1.0 / static_cast<double>(classes))) * eps;
  if (options.z_loss != 0) loss = loss + square(lse) * options.z_loss;
  Tensor valid = ne(target, options.ignore_index);
  return reduce_rows(masked_fill(loss, logical_not(valid), 0.0), valid, options.reduction);
}

Tensor class_loss::resolved(const Tensor& x, const char* op) {
  if (!x.is_distributed() || !x.impl()->layout->partial) return x;
  dist::LayoutData content = *x.impl()->layout;
  content.partial = 0;
  return autograd::redistribute_taped(x, content.mesh->intern(content), op);
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options) {
  class_loss::check("cross_entropy", options);
  int64_t dim = class_dim(x, target), classes = x.shape()[dim];
  bool smooth = options.label_smoothing > 0;
  Tensor shift;
  {
    NoGrad off;
    shift = amax(x, dim, true);
  }
  ops::TermAttributes a{dim, smooth ? 3 : 2, classes, options.ignore_index, 0};
  Tensor terms = class_loss::resolved(apply(ops::cross_entropy_terms, a, x, shift, target), "cross_entropy");
  Tensor lse = log(select(terms, 0, 0)) + cast(squeeze(shift, dim), terms.dtype());
  return class_loss::of_terms(lse, select(terms, 0, 1), smooth ? select(terms, 0, 2) : Tensor(), classes, target,
                              options);
}

Tensor count_valid(const Tensor& target, int64_t ignore_index) {
  NoGrad off;
  return class_loss::resolved(sum(ne(target, ignore_index)), "count_valid");
}

}  // namespace cleave
