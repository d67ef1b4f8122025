#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/unary.h>
#include <limits>

namespace cleave {

using namespace pointwise_op;

namespace ops {

// Each record: how it is inferred, whether a partial sum passes, its function, and its gradient by input x or result y.
extern const OpDef neg{
    .name = "neg",
    .infer = infer_same,
    .layout = linear,
    .kernel = kernel<Pointwise::neg>,
    .backward = [](const BackwardCall& c, std::span<Tensor> out) { out[0] = call<Pointwise::neg>({&c.grads[0]}); },
    .cost = cost,
    .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef abs{.name = "abs",
                       .infer = infer_same,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::abs>,
                       .backward = backward_x<Pointwise::abs_grad>,
                       .saves = {.inputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef sign{.name = "sign",
                        .infer = infer_same,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::sign>,
                        .backward = backward_zero,
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef square{.name = "square",
                          .infer = infer_same,
                          .layout = not_linear,
                          .kernel = kernel<Pointwise::square>,
                          .backward = backward_x<Pointwise::square_grad>,
                          .saves = {.inputs = 1},
                          .cost = cost,
                          .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef exp{.name = "exp",
                       .infer = infer_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::exp>,
                       .backward = backward_y<Pointwise::mul>,
                       .saves = {.outputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::normal); },
                       .precision = Precision::f32};
extern const OpDef expm1{.name = "expm1",
                         .infer = infer_floating,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::expm1>,
                         .backward = backward_y<Pointwise::expm1_grad>,
                         .saves = {.outputs = 1},
                         .cost = cost,
                         .samples = [] { return unary_samples(Fill::normal); },
                         .precision = Precision::f32};
extern const OpDef log{.name = "log",
                       .infer = infer_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::log>,
                       .backward = backward_x<Pointwise::log_grad>,
                       .saves = {.inputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::positive); },
                       .precision = Precision::f32};
extern const OpDef log1p{.name = "log1p",
                         .infer = infer_floating,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::log1p>,
                         .backward = backward_x<Pointwise::log1p_grad>,
                         .saves = {.inputs = 1},
                         .cost = cost,
                         .samples = [] { return unary_samples(Fill::positive); },
                         .precision = Precision::f32};
extern const OpDef sqrt{.name = "sqrt",
                        .infer = infer_floating,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::sqrt>,
                        .backward = backward_y<Pointwise::sqrt_grad>,
                        .saves = {.outputs = 1},
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::positive); }};
extern const OpDef rsqrt{.name = "rsqrt",
                         .infer = infer_floating,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::rsqrt>,
                         .backward = backward_y<Pointwise::rsqrt_grad>,
                         .saves = {.outputs = 1},
                         .cost = cost,
                         .samples = [] { return unary_samples(Fill::positive); },
                         .precision = Precision::f32};
extern const OpDef reciprocal{.name = "reciprocal",
                              .infer = infer_floating,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::reciprocal>,
                              .backward = backward_y<Pointwise::reciprocal_grad>,
                              .saves = {.outputs = 1},
                              .cost = cost,
                              .samples = [] { return unary_samples(Fill::positive); },
                              .precision = Precision::f32};
extern const OpDef sin{.name = "sin",
                       .infer = infer_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::sin>,
                       .backward = backward_x<Pointwise::sin_grad>,
                       .saves = {.inputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef cos{.name = "cos",
                       .infer = infer_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::cos>,
                       .backward = backward_x<Pointwise::cos_grad>,
                       .saves = {.inputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef erf{.name = "erf",
                       .infer = infer_floating,
                       .layout = not_linear,
                       .kernel = kernel<Pointwise::erf>,
                       .backward = backward_x<Pointwise::erf_grad>,
                       .saves = {.inputs = 1},
                       .cost = cost,
                       .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef floor{.name = "floor",
                         .infer = infer_floating,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::floor>,
                         .backward = backward_zero,
                         .cost = cost,
                         .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef ceil{.name = "ceil",
                        .infer = infer_floating,
                        .layout = not_linear,
                        .kernel = kernel<Pointwise::ceil>,
                        .backward = backward_zero,
                        .cost = cost,
                        .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef round{.name = "round",
                         .infer = infer_floating,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::round>,
                         .backward = backward_zero,
                         .cost = cost,
                         .samples = [] { return unary_samples(Fill::normal); }};
extern const OpDef pow_scalar{.name = "pow",
                              .infer = infer_floating,
                              .layout = not_linear,
                              .kernel = kernel<Pointwise::pow_scalar>,
                              .backward = backward_x<Pointwise::pow_scalar_grad>,
                              .saves = {.inputs = 1},
                              .cost = cost,
                              .samples =
                                  [] {
                                    return unary_samples(Fill::positive, {2.5, 0});
                                  },
                              .precision = Precision::f32};
extern const OpDef clamp{.name = "clamp",
                         .infer = infer_same,
                         .layout = not_linear,
                         .kernel = kernel<Pointwise::clamp>,
                         .backward = backward_x<Pointwise::clamp_grad>,
                         .saves = {.inputs = 1},
                         .cost = cost,
                         .samples = [] {
                           return unary_samples(Fill::normal, {-0.5, 0.75});
                         }};
extern const OpDef is_nan{.name = "isnan",
                          .infer = infer_bool,
                          .layout = not_linear,
                          .kernel = kernel<Pointwise::is_nan>,
                          .cost = cost,
                          .samples = [] { return unary_samples(Fill::normal, {}, true, false); }};
extern const OpDef is_finite{.name = "isfinite",
                             .infer = infer_bool,
                             .layout = not_linear,
                             .kernel = kernel<Pointwise::is_finite>,
                             .cost = cost,
                             .samples = [] { return unary_samples(Fill::normal, {}, true, false); }};
extern const OpDef logical_not{.name = "logical_not",
                               .infer = infer_bool,
                               .layout = not_linear,
                               .kernel = kernel<Pointwise::logical_not>,
                               .cost = cost,
                               .samples = [] { return unary_samples(Fill::normal, {}, true, false); }};

}  // namespace ops

namespace {
Tensor run(const OpDef& op, const Tensor& x, PointwiseParams params = {}) { return apply(op, params, x); }
}  // namespace

Tensor neg(const Tensor& x) { return run(ops::neg, x); }
Tensor operator-(const Tensor& x) { return run(ops::neg, x); }
Tensor abs(const Tensor& x) { return run(ops::abs, x); }
Tensor sign(const Tensor& x) { return run(ops::sign, x); }
Tensor square(const Tensor& x) { return run(ops::square, x); }
Tensor exp(const Tensor& x) { return run(ops::exp, x); }
Tensor expm1(const Tensor& x) { return run(ops::expm1, x); }
Tensor log(const Tensor& x) { return run(ops::log, x); }
Tensor log1p(const Tensor& x) { return run(ops::log1p, x); }
Tensor sqrt(const Tensor& x) { return run(ops::sqrt, x); }
Tensor rsqrt(const Tensor& x) { return run(ops::rsqrt, x); }
Tensor reciprocal(const Tensor& x) { return run(ops::reciprocal, x); }
Tensor sin(const Tensor& x) { return run(ops::sin, x); }
Tensor cos(const Tensor& x) { return run(ops::cos, x); }
Tensor erf(const Tensor& x) { return run(ops::erf, x); }
Tensor floor(const Tensor& x) { return run(ops::floor, x); }
Tensor ceil(const Tensor& x) { return run(ops::ceil, x); }
Tensor round(const Tensor& x) { return run(ops::round, x); }
Tensor pow(const Tensor& x, double exponent) { return run(ops::pow_scalar, x, {exponent, 0}); }
Tensor isnan(const Tensor& x) { return run(ops::is_nan, x); }
Tensor isfinite(const Tensor& x) { return run(ops::is_finite, x); }
Tensor logical_not(const Tensor& x) { return run(ops::logical_not, x); }

Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  return run(ops::clamp, x, {low.value_or(-inf), high.value_or(inf)});
}

}  // namespace cleave
