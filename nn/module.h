// Module: what users derive their modules from.
//
//   struct Mlp : nn::Module<Mlp> {
//     nn::Linear up{this, "up", 512, 2048}, down{this, "down", 2048, 512};
//     Tensor forward(const Tensor& x) const { return down(gelu(up(x))); }
//   };
#pragma once
#include <optional>
#include <tuple>

#include <cleave/autograd/memo.h>
#include <cleave/dist/ambient.h>
#include <cleave/nn/gather.h>
#include <cleave/nn/module_base.h>
#include <cleave/nn/observer.h>
#include <cleave/nn/recompute.h>
#include <cleave/nn/tensors.h>

namespace cleave::nn {

namespace detail {

/// One run of a module's `operator()`: places inputs and outputs as the plan says and holds the scopes in between.
class ModuleCall {
 public:
  explicit ModuleCall(const ModuleBase& module) : span_(module), module_(module), observer_(CallObserver::current()) {
    if (observer_) observer_->enter(module);
  }
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  /// The next input tensor in the plan's layout.
  Tensor operator()(const Tensor& input);
  /// All inputs are placed: from here creation functions use the module's mesh, and redistributions are kept.
  void begin();
  void end();
  /// The next output tensor in the plan's layout.
  Tensor output(const Tensor& y);
  /// All outputs are placed: checks that the plan named no others, and tells the observer.
  void finish(const std::vector<Tensor>& outputs) const;
  bool observed() const { return observer_ != nullptr; }

 private:
  Tensor take_input(const Tensor& input, int position);

  ModuleSpan span_;
  const ModuleBase& module_;
  CallObserver* observer_;
  std::vector<Tensor> seen_;  // the inputs, for the observer
  int inputs_ = 0, outputs_ = 0;
  std::optional<autograd::MemoScope> memo_;
  std::optional<GatherScope> gathers_;
  std::optional<dist::UseMesh> mesh_;
};

}  // namespace detail

/// CRTP parent of modules with a `forward`. Construct a root as `Module()`, a child as `Module(parent, name)`. Names of
/// inputs, where a plan uses them: `static constexpr std::array inputs{"x", "mask"};`, in the order of the tensors.
template <class Self>
class Module : public ModuleBase {
 public:
  /// `forward(args...)`: tensors (also in vectors, pairs, tuples) are first brought to the plan's input layouts, the
  /// results to its output layouts, which may communicate; other arguments pass through. Throws LayoutError for a plain
  /// tensor that goes into a sharded module whose plan does not name its layout. A module that `recomputes()` is called
  /// by `checkpoint`; ValueError if it takes an argument that cannot be copied.
  template <class... A>
  auto operator()(A&&... args) const {
    if (recomputes()) [[unlikely]] {
      if constexpr ((detail::can_keep<A> && ...))
        return checkpoint([this](auto&&... given) { return call(std::forward<decltype(given)>(given)...); },
                          std::forward<A>(args)...);
      else
        detail::refuse_to_keep(*this);
    }
    return call(std::forward<A>(args)...);
  }

  std::span<const char* const> input_names() const override {
    if constexpr (requires { Self::inputs.data(); })
      return {Self::inputs.data(), Self::inputs.size()};
    else
      return {};
  }
  bool callable() const override { return true; }

 protected:
  Module() = default;
  Module(ModuleBase* parent, std::string name) : ModuleBase(parent, std::move(name)) {}

 private:
  template <class... A>
  auto call(A&&... args) const {
    detail::ModuleCall call(*this);
    auto inputs = detail::placed_arguments(call, std::forward<A>(args)...);
    call.begin();
    auto run = [&](auto&... input) -> decltype(auto) {
      return static_cast<const Self&>(*this).forward(input.take()...);
    };
    using Result = std::decay_t<decltype(std::apply(run, inputs))>;
    if constexpr (std::is_void_v<Result>) {
      std::apply(run, inputs);
      call.end();
      call.finish({});
    } else {
      Result result = std::apply(run, inputs);
      call.end();
      detail::each_tensor(result, [&](Tensor& t) { t = call.output(t); });
      call.finish(call.observed() ? detail::list_tensors(result) : std::vector<Tensor>{});
      return result;
    }
  }
};

}  // namespace cleave::nn
