// custom_shard: a user's code on this rank's blocks, with layouts that it declares.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include <cleave/nn/shard.h>

namespace cleave::nn {

struct CustomLayouts {
  std::vector<std::string> in = {};
  std::vector<std::string> out = {};
  /// Optional, one text per input: the mesh axes ("tp", "dp, tp", "" for none) on which the gradient that the
  /// function's backward gives for that input is a partial sum, among those where the input is replicated; on the
  /// others it is the whole gradient on every rank. For functions that communicate themselves; without it, see below.
  std::vector<std::string> grad = {};
};

namespace detail {

struct CustomPlan {
  FunctionPlan layouts;
  std::vector<dist::AxisMask> grad;  ///< empty: by rule
};
CustomPlan read_custom(dist::DeviceMesh mesh, const CustomLayouts& layouts);

/// One call: hands out blocks, runs the function on a tape of its own, and makes the one node.
class CustomCall {
 public:
  explicit CustomCall(const CustomPlan& plan);
  ~CustomCall();
  CustomCall(const CustomCall&) = delete;
  CustomCall& operator=(const CustomCall&) = delete;
  Tensor operator()(const Tensor& input);
  void begin();
  /// The function's results, as tensors of the declared layouts. Communicates: the ranks agree on the shapes.
  std::vector<Tensor> finish(const std::vector<Tensor>& results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

template <class F>
class CustomFunction {
 public:
  CustomFunction(F fn, detail::CustomPlan plan) : fn_(std::move(fn)), plan_(std::move(plan)) {}

  template <class... A>
  auto operator()(A&&... args) const {
    detail::CustomCall call(plan_);
    auto blocks = detail::placed_arguments(call, std::forward<A>(args)...);
    call.begin();
    auto result = std::apply([&](auto&... block) { return fn_(block.take()...); }, blocks);
    std::vector<Tensor> outputs = call.finish(detail::list_tensors(result));
    size_t i = 0;
    detail::each_tensor(result, [&](Tensor& t) { t = outputs[i++]; });
    return result;
  }

 private:
  F fn_;
  detail::CustomPlan plan_;
};

/// Runs `fn` on plain blocks: inputs are brought to the layouts of `in` (plain ones taken as values that all ranks
/// hold), `fn` gets this rank's blocks, and its results are this rank's blocks of tensors of the layouts of `out`.
/// Blocks must be the balanced ones (ShapeError on all ranks); the ranks agree on global shapes in one small all-gather
/// per call. `fn` must depend on its arguments alone (GradError if it uses another tensor that requires grad); a rank
/// outside the mesh cannot call it (LayoutError).
///
/// On the tape the call is one op. Its gradients follow the rule of local ops: where an output is split
/// or partial on an axis, the gradient of an input that is replicated there is the ranks' sum, and cotangents of
/// replicated outputs count once; elsewhere it is whole. A function that communicates on its own declares `grad`
/// instead, and gets whole cotangents.
template <class F>
CustomFunction<std::decay_t<F>> custom_shard(F&& fn, dist::DeviceMesh mesh, const CustomLayouts& layouts) {
  return {std::forward<F>(fn), detail::read_custom(mesh, layouts)};
}

}  // namespace cleave::nn
