// What element-wise OpDefs share: inference, rule, kernel and samples by function.
#pragma once
#include <cleave/core/cpu/pointwise.h>
#include <cleave/ops/op.h>

namespace cleave::pointwise_op {

template <Pointwise F>
void cpu_kernel(const KernelCall& c) {
  cpu::pointwise(F, c.in, *c.out[0], c.attributes.size() ? c.attributes.as<PointwiseParams>() : PointwiseParams{});
}
template <Pointwise F>
inline constexpr Kernel kernel{
    .cpu = cpu_kernel<F>, .cpu_scratch = [](const KernelCall& c) { return cpu::pointwise_scratch(c.in, *c.out[0]); }};

/// The dtype of input 0 (A), the same or f32 for integers (F), bool (C).
void infer_same(const InferCall& call, std::span<OutputType> out);
void infer_floating(const InferCall& call, std::span<OutputType> out);
void infer_bool(const InferCall& call, std::span<OutputType> out);
/// The same for two inputs, broadcast and promoted.
void infer_binary(const InferCall& call, std::span<OutputType> out);
void infer_binary_floating(const InferCall& call, std::span<OutputType> out);
void infer_binary_bool(const InferCall& call, std::span<OutputType> out);

Rule not_linear(const RuleCall& call);
Rule linear(const RuleCall& call);          ///< in its one input
Rule jointly_linear(const RuleCall& call);  ///< in both of two

Cost cost(std::span<const View* const> in, std::span<const View* const> out, const Attributes& attributes);

/// A gradient summed over the dims that broadcasting added, in the input's dtype.
Tensor unbroadcast(const BackwardCall& call, size_t input, const Tensor& gradient);

/// out = F(in...) with shape and dtype of the first.
template <Pointwise F>
Tensor call(std::initializer_list<const Tensor*> in, const Attributes& attributes = {}) {
  const Tensor& first = **in.begin();
  return run_kernel(kernel<F>, "gradient", in, first.shape(), first.dtype(), attributes);
}

/// Backward of a function of one tensor by G(x, g) or G(y, g).
template <Pointwise G>
Tensor backward_of(const Tensor& saved, const Tensor& gradient, const Attributes& attributes) {
  Tensor out = gradient_room(saved, saved.dtype());
  const View *in[] = {&detail::elements(saved), &detail::elements(gradient)}, *to[] = {&out.impl()->view};
  launch(kernel<G>, saved.device(), "gradient", {in, to, attributes});
  return out;
}
template <Pointwise G>
void backward_x(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = backward_of<G>(c.inputs[0], c.grads[0], c.attributes);
}
template <Pointwise G>
void backward_y(const BackwardCall& c, std::span<Tensor> out) {
  out[0] = backward_of<G>(c.outputs[0], c.grads[0], c.attributes);
}
void backward_zero(const BackwardCall& c, std::span<Tensor> out);

/// Shapes for one input: a matrix with a prime size, a vector, a scalar, an empty one.
std::vector<Sample> unary_samples(Fill fill, PointwiseParams params = {}, bool integers = true, bool gradient = true);
/// Shapes for two: equal, broadcast both ways, scalars, empty.
std::vector<Sample> binary_samples(Fill a, Fill b, bool integers = true, bool gradient = true);

}  // namespace cleave::pointwise_op
