#include <cleave/ops/activation.h>
#include <cleave/ops/internal/pointwise_op.h>

namespace cleave {

using namespace pointwise_op;

namespace ops {

extern const OpDef relu{.name = "relu",
                        .infer = infer_same,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::relu>,
                        .backward = backward_x<Pointwise::relu_grad>,
                        .saves = {.inputs = 1},
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef tanh{.name = "tanh",
                        .infer = infer_floating,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::tanh>,
                        .backward = backward_y<Pointwise::tanh_grad>,
                        .saves = {.outputs = 1},
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef sigmoid{.name = "sigmoid",
                           .infer = infer_floating,
                           .layout = not_linear,
                           .kernel = kernel<Pointwise::sigmoid>,
                           .backward = backward_y<Pointwise::sigmoid_grad>,
                           .saves = {.outputs = 1},
                           .cost = cost,
                           .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef silu{.name = "silu",
                        .infer = infer_floating,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::silu>,
                        .backward = backward_x<Pointwise::silu_grad>,
                        .saves = {.inputs = 1},
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef softplus{.name = "softplus",
                            .infer = infer_floating,
                            .layout = not_linear,
                            .kernel = kernel<Pointwise::softplus>,
                            .backward = backward_x<Pointwise::softplus_grad>,
                            .saves = {.inputs = 1},
                            .cost = cost,
                            .samples = [] { return unary_samples(Fill::normal); },
                            .precision = Precision::f32};
extern const OpDef gelu{.name = "gelu",
                        .infer = infer_floating,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::gelu>,
                        .backward = backward_x<Pointwise::gelu_grad>,
                        .saves = {.inputs = 1},
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef gelu_tanh{.name = "gelu_tanh",
                             .infer = infer_floating,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::gelu_tanh>,
                             .backward = backward_x<Pointwise::gelu_tanh_grad>,
                             .saves = {.inputs = 1},
                             .cost = cost,
                             .samples = [] { return unary_samples(Fill::normal); }};

}  // namespace ops

namespace {
Tensor run(const OpDef& op, const Tensor& x) { return apply(op, PointwiseParams{}, x); }
}  // namespace

Tensor relu(const Tensor& x) { return run(ops::relu, x); }
Tensor tanh(const Tensor& x) { return run(ops::tanh, x); }
Tensor sigmoid(const Tensor& x) { return run(ops::sigmoid, x); }
Tensor silu(const Tensor& x) { return run(ops::silu, x); }
Tensor softplus(const Tensor& x) { return run(ops::softplus, x); }

Tensor gelu(const Tensor& x, const GeluOptions& options) {
  if (options.approximate == "none") return run(ops::gelu, x);
  if (options.approximate == "tanh") return run(ops::gelu_tanh, x);
  throw ValueError(op_message(
      "gelu", "approximate is \"" + std::string(options.approximate) + "\"; it must be \"none\" or \"tanh\""));
}

}  // namespace cleave
