// shard: a model under a plan, a function between layouts.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <cleave/autograd/memo.h>
#include <cleave/dist/ambient.h>
#include <cleave/nn/module_base.h>
#include <cleave/nn/plan.h>
#include <cleave/nn/tensors.h>

namespace cleave::nn {

/// Places the model on the mesh, in place: parameters and buffers take their layouts (deferred ones are made as this
/// rank's blocks, the others cut from the values that all ranks hold), and its `operator()`s run between the layouts of
/// `forward`. Handles stay valid. The whole plan is checked first, alike on every rank: PlanError for names, patterns
/// or ports that nothing has, with the nearest names, and for two patterns that disagree; LayoutError for layouts that
/// do not fit. A model may be sharded again, under another plan or on another mesh; gradients must be zeroed before
/// (GradError). Communicates in checked mode (values are compared) and when it re-distributes.
void shard(ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan = {});

/// Layouts of a function's tensors by position; patterns are allowed.
struct FunctionLayouts {
  std::vector<std::string> in = {};
  std::vector<std::string> out = {};
};

namespace detail {

/// The layouts of one function, read once.
struct FunctionPlan {
  dist::DeviceMesh mesh;
  std::vector<dist::Layout> in, out;
};
FunctionPlan read_layouts(const char* op, dist::DeviceMesh mesh, const FunctionLayouts& layouts);
/// x in `layout`, which a plain x is taken into as a value that all ranks hold.
Tensor place_tensor(const Tensor& x, dist::Layout layout);
/// LayoutError unless there are as many "input" ("output") tensors as declared layouts.
void require_count(const char* op, const char* what, size_t got, size_t declared);

class FunctionCall {
 public:
  explicit FunctionCall(const FunctionPlan& plan) : plan_(plan) {}
  Tensor operator()(const Tensor& input);
  void begin();
  void end();
  Tensor output(const Tensor& y);
  void finish() const;

 private:
  const FunctionPlan& plan_;
  size_t inputs_ = 0, outputs_ = 0;
  std::optional<autograd::MemoScope> memo_;
  std::optional<dist::UseMesh> mesh_;
};

}  // namespace detail

/// A function with its inputs and outputs brought to layouts: what `shard(fn, ...)` returns.
template <class F>
class ShardedFunction {
 public:
  ShardedFunction(F fn, detail::FunctionPlan plan) : fn_(std::move(fn)), plan_(std::move(plan)) {}

  template <class... A>
  auto operator()(A&&... args) const {
    detail::FunctionCall call(plan_);
    auto inputs = detail::placed_arguments(call, std::forward<A>(args)...);
    call.begin();
    auto result = std::apply([&](auto&... input) { return fn_(input.take()...); }, inputs);
    call.end();
    detail::each_tensor(result, [&](Tensor& t) { t = call.output(t); });
    call.finish();
    return result;
  }

 private:
  F fn_;
  detail::FunctionPlan plan_;
};

/// Wraps a function of tensors (also in vectors, pairs, tuples; other arguments pass through): inputs are brought to
/// the layouts of `in`, outputs to those of `out`, and the mesh is ambient in between. A plain input is taken as a
/// value that all ranks hold. The call throws LayoutError unless there is one layout per input tensor and per output
/// tensor.
///
///   auto f = nn::shard(net, mesh, {.in = {"x, -", "-, -"}, .out = {"..."}});
template <class F>
requires(!std::is_base_of_v<ModuleBase, std::remove_cvref_t<F>>)
    ShardedFunction<std::decay_t<F>> shard(F&& fn, dist::DeviceMesh mesh, const FunctionLayouts& layouts) {
  return {std::forward<F>(fn), detail::read_layouts("shard", mesh, layouts)};
}

}  // namespace cleave::nn
