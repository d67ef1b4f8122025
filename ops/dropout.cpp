#include <cleave/core/cpu/random.h>
#include <cleave/dist/internal/checks.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/dropout.h>
#include <cleave/ops/internal/pointwise_op.h>

namespace cleave {
namespace ops {
namespace {

struct DropoutAttributes {
  detail::BlockOrigin origin;
  detail::RandomKey key;
  double p;
};

void infer_dropout(const InferCall& call, std::span<OutputType> out) {
  require_floating("dropout", *call.in[0]);
  pointwise_op::infer_same(call, out);
}
void locate(const LocalizeCall& call, void* attributes) {
  auto& a = *static_cast<DropoutAttributes*>(attributes);
  a.origin = {call.out[0].shape, call.out_offset(0)};
}
void dropout_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<DropoutAttributes>();
  cpu::dropout(*c.in[0], a.origin, a.key, a.p, *c.out[0]);
}
constexpr Kernel kDropout{.cpu = dropout_kernel};

// The mask is made again from the key: nothing is saved.
void dropout_backward(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = run_kernel(kDropout, "dropout", {&c.grads[0]}, c.input_shape(0), c.input_dtype(0), c.attributes);
}

std::vector<Sample> dropout_samples() {
  std::vector<Sample> out;
  for (const Shape& shape : {Shape{5, 7}, Shape{2, 3, 4}, Shape{}, Shape{0, 3}})
    out.push_back({.inputs = {{shape}}, .attributes = sample_attributes(DropoutAttributes{{}, {7, 3}, 0.4})});
  return out;
}

}  // namespace

extern const OpDef dropout{.name = "dropout",
                           .infer = infer_dropout,
                           .layout = pointwise_op::linear,
                           .localize = locate,
                           .kernel = kDropout,
                           .backward = dropout_backward,
                           .cost = pointwise_op::cost,
                           .samples = dropout_samples};

}  // namespace ops

Tensor dropout(const Tensor& x, double p, bool training) {
  if (!(p >= 0 && p <= 1))
    throw ValueError(op_message("dropout", "p is " + std::to_string(p) + "; it must lie in [0, 1]"));
  if (!training || p == 0) return x;
  detail::RandomKey key = detail::next_random_key();
  dist::detail::require_same_key("dropout", key, x.impl()->layout, x.device());
  return apply(ops::dropout, ops::DropoutAttributes{{}, key, p}, x);
}

}  // namespace cleave
