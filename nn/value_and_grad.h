// value_and_grad: a function's value and its gradients with respect to given tensors.
#pragma once
#include <optional>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/nn/parameter.h>
#include <cleave/nn/tensors.h>

namespace cleave::nn {

/// The cotangent of one output: a number for every element, or a tensor of its shape, dtype and mesh.
struct Sens {
  Sens(double value) : number(value) {}
  Sens(const Tensor& value) : tensor(value) {}
  double number = 0;
  Tensor tensor;
};

struct ValueAndGradOptions {
  /// One per output; empty: the first output gets 1, the others 0.
  std::vector<Sens> sens = {};
};

/// `auto [value, grads] = ...`
template <class V>
struct ValueAndGrad {
  V value;                    ///< what the function returned, off the tape
  std::vector<Tensor> grads;  ///< by weight, in its gradient layout; f32 for bf16 and f16; zeros where not reached
};

namespace detail {

/// Makes weights require grad while it lives, and forbids another one inside.
class GradCall {
 public:
  explicit GradCall(const std::vector<Tensor>& weights);
  ~GradCall();
  GradCall(const GradCall&) = delete;
  GradCall& operator=(const GradCall&) = delete;
  std::vector<Tensor> gradients(const std::vector<Tensor>& outputs, const ValueAndGradOptions& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

template <class F>
class ValueAndGradFunction {
 public:
  ValueAndGradFunction(F fn, ValueAndGradOptions options) : fn_(std::move(fn)), options_(std::move(options)) {}

  /// Weights are floating leaves. Communicates as the function does, and to sum the gradients.
  auto operator()(const std::vector<Tensor>& weights) const {
    detail::GradCall call(weights);
    auto value = fn_(weights);
    static_assert(detail::has_tensors<decltype(value)>, "the function must return a Tensor, or several");
    std::vector<Tensor> grads = call.gradients(detail::list_tensors(value), options_);
    detail::each_tensor(value, [](Tensor& t) { t = t.detach(); });
    return ValueAndGrad<decltype(value)>{std::move(value), std::move(grads)};
  }
  /// Of a model's parameters, as stored; the function reads them through the model.
  auto operator()(const std::vector<Parameter>& parameters) const {
    std::vector<Tensor> weights;
    for (const Parameter& p : parameters) weights.push_back(p.tensor());
    return (*this)(weights);
  }

 private:
  F fn_;
  ValueAndGradOptions options_;
};

/// A function of `const std::vector<Tensor>&` with its gradients: `nn::value_and_grad(fn)({w, b})`. The function gets
/// the same tensors, which require grad for the call only; no `.grad` changes, no hook runs. One output that is not a
/// scalar is seeded with ones. Throws GradError inside a function that is being differentiated (gradients are first
/// order) and for a weight that an op on the tape produced; ValueError unless there are as many `sens` as outputs.
template <class F>
ValueAndGradFunction<std::decay_t<F>> value_and_grad(F&& fn, const ValueAndGradOptions& options = {}) {
  return {std::forward<F>(fn), options};
}

}  // namespace cleave::nn
