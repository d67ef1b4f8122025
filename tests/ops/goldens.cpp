// The public functions against values and gradients that PyTorch computed.
#include <cleave/ops/activation.h>
#include <cleave/ops/attention.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/index.h>
#include <cleave/ops/linear_cross_entropy.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/rope.h>
#include <cleave/ops/softmax.h>
#include <cleave/ops/unary.h>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <set>

#include "support/goldens.h"

using namespace cleave;
using namespace cleave::test;

namespace {

using Args = std::vector<Tensor>;
using Function = std::function<Tensor(const Args&)>;

struct Entry {
  const char* name;
  std::vector<const char*> inputs;
  Function call;
  double tolerance = 1e-12;
};

template <Tensor (*F)(const Tensor&)>
Entry one(const char* name) {
  return {name, {"x"}, [](const Args& a) { return F(a[0]); }};
}
template <Tensor (*F)(const Tensor&, const Tensor&)>
Entry two(const char* name) {
  return {name, {"a", "b"}, [](const Args& a) { return F(a[0], a[1]); }};
}
Entry of_x(const char* name, std::function<Tensor(const Tensor&)> f, double tolerance = 1e-12) {
  return {name, {"x"}, [f](const Args& a) { return f(a[0]); }, tolerance};
}
Entry loss(const char* name, CrossEntropyOptions options) {
  return {name, {"x", "target"}, [options](const Args& a) { return cross_entropy(a[0], a[1], options); }};
}
Entry linear_loss(const char* name, LinearCrossEntropyOptions options) {
  options.chunk = 4;
  return {name, {"x", "weight", "target"}, [options](const Args& a) {
            return linear_cross_entropy(a[0], a[1], a[2], options);
          }};
}
Entry attention(const char* name, AttentionOptions options, bool mask = false) {
  Entry e{name, {"q", "k", "v"}, [options](const Args& a) {
            AttentionOptions o = options;
            if (a.size() > 3) o.mask = a[3];
            return scaled_dot_product_attention(a[0], a[1], a[2], o);
          }};
  if (mask) e.inputs.push_back("mask");
  return e;
}

std::vector<Entry> entries() {
  constexpr double inf = std::numeric_limits<double>::infinity();
  Tensor pattern = make_tensor({DType::boolean, Shape{5}, {1, 0, 1, 1, 0}}, DType::boolean);
  return {
      one<exp>("exp"),
      one<expm1>("expm1"),
      one<sin>("sin"),
      one<cos>("cos"),
      one<tanh>("tanh"),
      one<erf>("erf"),
      one<sigmoid>("sigmoid"),
      one<silu>("silu"),
      one<softplus>("softplus"),
      one<relu>("relu"),
      one<abs>("abs"),
      one<square>("square"),
      one<log>("log"),
      one<log1p>("log1p"),
      one<sqrt>("sqrt"),
      one<rsqrt>("rsqrt"),
      one<reciprocal>("reciprocal"),
      of_x("gelu", [](const Tensor& x) { return gelu(x); }),
      of_x("gelu_tanh", [](const Tensor& x) { return gelu(x, {.approximate = "tanh"}); }),
      of_x("pow_scalar", [](const Tensor& x) { return pow(x, 2.5); }),
      of_x("clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.75); }),
      two<div>("div"),
      two<pow>("pow"),
      two<maximum>("maximum"),
      two<minimum>("minimum_ties"),
      two<remainder>("remainder"),
      two<floor_divide>("floor_divide"),
      {"where", {"a", "b"}, [pattern](const Args& a) { return where(pattern, a[0], a[1]); }},
      of_x("sum",
           [](const Tensor& x) {
             return sum(x, {0, 2});
           }),
      of_x("mean", [](const Tensor& x) { return mean(x, 1, true); }),
      of_x("var",
           [](const Tensor& x) {
             return var(x, {1, 2});
           }),
      of_x("var_biased", [](const Tensor& x) { return var(x, 1, 0); }),
      of_x("prod", [](const Tensor& x) { return prod(x, 1); }),
      of_x("logsumexp",
           [](const Tensor& x) {
             return logsumexp(x, {0, 2});
           }),
      of_x("logsumexp_large", [](const Tensor& x) { return logsumexp(x, 1); }),
      of_x("norm1", [](const Tensor& x) { return norm(x, 1, 1); }),
      of_x("norm2", [](const Tensor& x) { return norm(x, 2, 1); }),
      of_x("norm3", [](const Tensor& x) { return norm(x, 3, 1); }),
      of_x("norm_all", [](const Tensor& x) { return norm(x); }),
      of_x("norm_inf", [](const Tensor& x) { return norm(x, inf, 1); }),
      of_x("amax_ties", [](const Tensor& x) { return amax(x, 1); }),
      of_x("amin_ties",
           [](const Tensor& x) {
             return amin(x, {0, 1});
           }),
      of_x("argmax", [](const Tensor& x) { return argmax(x, 1); }),
      two<matmul>("matmul_batched"),
      two<matmul>("matmul_vector"),
      {"linear", {"x", "weight", "bias"}, [](const Args& a) { return linear(a[0], a[1], a[2]); }},
      of_x("softmax", [](const Tensor& x) { return softmax(x, 1); }),
      of_x("log_softmax", [](const Tensor& x) { return log_softmax(x, -1); }),
      {"layer_norm",
       {"x", "weight", "bias"},
       [](const Args& a) {
         return layer_norm(a[0], {3, 4}, a[1], a[2]);
       }},
      of_x("layer_norm_plain", [](const Tensor& x) { return layer_norm(x, {7}, {}, {}, 1e-3); }),
      // At an offset of 1e6 the inputs themselves carry an error of 1e-10 of their spread.
      of_x(
          "layer_norm_offset", [](const Tensor& x) { return layer_norm(x, {7}); }, 1e-9),
      {"rms_norm", {"x", "weight"}, [](const Args& a) { return rms_norm(a[0], {7}, a[1], 1e-6); }},
      {"embedding", {"ids", "weight"}, [](const Args& a) { return embedding(a[0], a[1]); }},
      {"gather", {"x", "index"}, [](const Args& a) { return gather(a[0], 1, a[1]); }},
      {"index_select", {"x", "index"}, [](const Args& a) { return index_select(a[0], 1, a[1]); }},
      loss("cross_entropy_mean", {}),
      loss("cross_entropy_sum", {.reduction = "sum"}),
      loss("cross_entropy_none", {.reduction = "none"}),
      loss("cross_entropy_smooth_mean", {.label_smoothing = 0.1}),
      loss("cross_entropy_smooth_sum", {.reduction = "sum", .label_smoothing = 0.1}),
      loss("cross_entropy_smooth_none", {.reduction = "none", .label_smoothing = 0.1}),
      loss("cross_entropy_ignore_2", {.ignore_index = 2}),
      loss("cross_entropy_dims", {.label_smoothing = 0.2}),
      loss("cross_entropy_large", {}),
      loss("cross_entropy_z", {.z_loss = 0.01}),
      linear_loss("linear_cross_entropy_mean", {}),
      linear_loss("linear_cross_entropy_smooth", {.reduction = "sum", .label_smoothing = 0.1}),
      linear_loss("linear_cross_entropy_z", {.reduction = "none", .z_loss = 0.01}),
      attention("attention", {}),
      attention("attention_causal", {.is_causal = true}),
      attention("attention_grouped", {.is_causal = true}),
      attention("attention_scale", {.scale = 0.3}),
      attention("attention_bool_mask", {}, true),
      attention("attention_additive_mask", {}, true),
      of_x("rope", [](const Tensor& x) { return rope(x); }),
      of_x("rope_interleaved", [](const Tensor& x) { return rope(x, {.interleaved = true}); }),
      of_x("rope_offset", [](const Tensor& x) { return rope(x, {.base = 500.0, .offset = 7}); }),
  };
}

}  // namespace

TEST_CASE("values and gradients of the public functions are PyTorch's") {
  std::set<std::string> covered;
  for (const Entry& e : entries()) {
    CAPTURE(e.name);
    covered.insert(e.name);
    const Golden& g = golden(e.name);
    Args inputs;
    for (const char* name : e.inputs) {
      inputs.push_back(golden_tensor(g, name));
      if (g.contains("grad_" + std::string(name))) inputs.back().set_requires_grad(true);
    }
    Tensor y = e.call(inputs);
    CHECK(difference(values_of(y), g.at("y"), e.tolerance) == "");
    if (!g.contains("cotangent")) continue;
    y.backward(golden_tensor(g, "cotangent"));
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string name = "grad_" + std::string(e.inputs[i]);
      CAPTURE(name);
      if (g.contains(name)) CHECK(difference(values_of(inputs[i].grad()), g.at(name), e.tolerance) == "");
    }
  }
  for (const auto& [name, tensors] : goldens())
    if (name.rfind("optim_", 0) != 0) CHECK_MESSAGE(covered.contains(name), "no test reads the case " << name);
}
