#include <cleave/core/cpu/index.h>
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/rope.h>

namespace cleave {
namespace ops {
namespace {

struct RopeAttributes {
  double base;
  int64_t offset;  ///< position of the first global row
  int64_t first;   ///< of this rank's first row
  bool interleaved;
};

void infer_rope(const InferCall& call, std::span<OutputType> out) {
  const Tensor& x = *call.in[0];
  require_floating("rope", x);
  if (x.dim() < 2 || x.shape().back() % 2 != 0)
    throw ShapeError(op_message("rope", describe(x.type()) + " must have at least two dims, the last of even size"));
  pointwise_op::infer_same(call, out);
}
Rule rope_rule(const RuleCall& call) {
  int rank = call.in[0].shape.rank();
  Rule rule;
  rule.in = {plain_letters(rank)};
  rule.out = rule.in;
  rule.whole = {dim_letter(rank - 1)};
  rule.linear = {1};
  return rule;
}
void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<RopeAttributes*>(attributes);
  a.first = a.offset + call.in_offset(0)[call.out[0].shape.rank() - 2];
}
template <bool Inverse>
void rope_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<RopeAttributes>();
  cpu::rope(*c.in[0], a.base, a.first, a.interleaved, Inverse, *c.out[0]);
}
void rope_backward(const BackwardCall& c, std::span<Tensor> out) {
  static constexpr Kernel inverse{.cpu = rope_kernel<true>};
  out[0] = run_kernel(inverse, "rope", {&c.grads[0]}, c.input_shape(0), c.input_dtype(0), c.attributes);
}
std::vector<Sample> rope_samples() {
  std::vector<Sample> out;
  for (const Shape& shape : {Shape{5, 6}, Shape{2, 3, 7, 4}, Shape{1, 2}, Shape{2, 0, 4}})
    for (bool interleaved : {false, true})
      out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(RopeAttributes{10000.0, 3, 0, interleaved})});
  return out;
}

}  // namespace

extern const OpDef rope{.name = "rope",
                        .infer = infer_rope,
                        .layout = rope_rule,
                        .localize = locate,
                        .kernel = {.cpu = rope_kernel<false>},
                        .backward = rope_backward,
                        .cost = pointwise_op::cost,
                        .samples = rope_samples};

}  // namespace ops

Tensor rope(const Tensor& x, const RopeOptions& options) {
  if (!(options.base > 0))
    throw ValueError(op_message("rope", "base is " + std::to_string(options.base) + "; it must be positive"));
  return apply(ops::rope, ops::RopeAttributes{options.base, options.offset, 0, options.interleaved}, x);
}

}  // namespace cleave
