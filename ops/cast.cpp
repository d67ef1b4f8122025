#include <cleave/core/cpu/pointwise.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/internal/pointwise_op.h>

namespace cleave {

namespace ops {
namespace {

struct CastAttributes {
  DType to;
};

void infer_cast(const InferCall& call, std::span<OutputType> out) {
  out[0] = {call.attributes.as<CastAttributes>().to, call.shape(0)};
}

// Rounding to a float format is taken as linear, truncation to integers is not; from integers to floats it is.
Rule cast_rule(const RuleCall& call) {
  bool linear = is_floating(call.attributes.as<CastAttributes>().to);
  return pointwise_rule(
      call, linear && call.in[0].dtype != DType::boolean ? std::vector<uint32_t>{0b1} : std::vector<uint32_t>{});
}

void cast_backward(const BackwardCall& c, std::span<Tensor> out) {
  if (is_floating(c.input_dtype(0))) out[0] = detail::dense_copy(c.grads[0], c.input_dtype(0));
}

std::vector<Sample> cast_samples() {
  std::vector<Sample> out;
  for (DType to : {DType::f64, DType::f32})
    for (const Shape& shape : {Shape{5, 7}, Shape{}, Shape{0, 3}})
      out.push_back({.inputs = {{shape}},
                     .attributes = sample_attributes(CastAttributes{to}),
                     .has_gradient = to == DType::f64,
                     .integers = true});
  for (DType to : {DType::i64, DType::i32, DType::boolean})
    out.push_back({.inputs = {{{5, 7}}},
                   .attributes = sample_attributes(CastAttributes{to}),
                   .has_gradient = false,
                   .integers = true});
  return out;
}

}  // namespace

extern const OpDef cast{
    .name = "cast",
    .infer = infer_cast,
    .layout = cast_rule,
    .key_bytes = sizeof(CastAttributes),
    .kernel = {.cpu = [](const KernelCall& c) { cpu::copy(*c.in[0], *c.out[0]); },
               .cpu_scratch = [](const KernelCall& c) { return cpu::copy_scratch(*c.in[0], *c.out[0]); }},
    .backward = cast_backward,
    .cost = pointwise_op::cost,
    .samples = cast_samples};

}  // namespace ops

Tensor cast(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : apply(ops::cast, ops::CastAttributes{dtype}, x);
}

}  // namespace cleave
