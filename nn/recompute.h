// Activation checkpointing (Chen et al. 2016): a function's intermediate tensors are computed again in backward instead
// of being kept. As a call, or for the modules of a model by name.
//
//   Tensor y = nn::checkpoint([&](const Tensor& x) { return down(gelu(up(x))); }, x);
//   nn::set_recompute(model, {"blocks.*"});
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cleave/nn/module_base.h>
#include <cleave/nn/tensors.h>

namespace cleave::nn {

namespace detail {

/// Runs a function again on these tensors, in the order in which its arguments have them.
class Recomputation {
 public:
  virtual ~Recomputation() = default;
  virtual std::vector<Tensor> run(std::vector<Tensor> inputs) = 0;
};

/// One call of `checkpoint`: sees what the function takes and gives, and what on the tape it uses.
class CheckpointCall {
 public:
  CheckpointCall();
  ~CheckpointCall();
  CheckpointCall(const CheckpointCall&) = delete;
  CheckpointCall& operator=(const CheckpointCall&) = delete;
  /// False while nothing is recorded: then the function is just called.
  bool records() const { return state_ != nullptr; }
  /// The next input tensor.
  Tensor operator()(const Tensor& input);
  /// The function runs from here to `finish`.
  void begin();
  /// The function's results as outputs of one node.
  std::vector<Tensor> finish(const std::vector<Tensor>& results, std::unique_ptr<Recomputation> again);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Tells the checkpoints that run on this rank that `module` is called.
void note_modes(const ModuleBase& module);
[[noreturn]] void refuse_to_keep(const ModuleBase& module);

/// Whether copies of a T can be made; containers say so of themselves whatever they hold.
template <class T>
constexpr bool is_copyable() {
  if constexpr (!std::is_copy_constructible_v<T>) {
    return false;
  } else if constexpr (requires { typename T::value_type; }) {
    if constexpr (!std::is_same_v<typename T::value_type, T>) return is_copyable<typename T::value_type>();
  }
  return true;
}
template <class A>
inline constexpr bool can_keep = is_copyable<std::decay_t<A>>();

template <class R>
constexpr bool gives_tensors() {
  if constexpr (std::is_void_v<R>)
    return false;
  else
    return has_tensors<R>;
}

/// A copy of an argument that passes through, given on as what it was.
template <class T>
struct KeptArgument {
  using Value = std::decay_t<T>;
  using Given = std::conditional_t<std::is_array_v<std::remove_reference_t<T>>, Value&&, T&&>;
  Value value;
  Given take() { return static_cast<Given>(value); }
};

/// What stays of a placed argument until backward: all but its tensors.
template <class T>
auto kept_argument(const Placed<T>& argument) {
  if constexpr (std::is_reference_v<T>) {
    return KeptArgument<T>{argument.value};
  } else {
    Placed<T> copy{argument.value};
    each_tensor(copy.value, [](Tensor& t) { t = {}; });
    return copy;
  }
}

/// A module is kept by its address, any other function as a copy.
template <class F>
using KeptFunction = std::conditional_t<std::is_base_of_v<ModuleBase, std::remove_cvref_t<F>>,
                                        std::reference_wrapper<std::remove_reference_t<F>>, std::decay_t<F>>;

template <class F, class Arguments>
class FunctionRecomputation : public Recomputation {
 public:
  template <class G>
  FunctionRecomputation(G&& fn, Arguments arguments) : fn(std::forward<G>(fn)), arguments_(std::move(arguments)) {}

  std::vector<Tensor> run(std::vector<Tensor> inputs) override {
    Arguments arguments = arguments_;
    size_t next = 0;
    auto fill = [&](auto& argument) { each_tensor(argument.value, [&](Tensor& t) { t = std::move(inputs[next++]); }); };
    std::apply([&](auto&... argument) { (fill(argument), ...); }, arguments);
    auto result = std::apply([&](auto&... argument) { return std::invoke(fn, argument.take()...); }, arguments);
    return list_tensors(result);
  }

  KeptFunction<F> fn;

 private:
  Arguments arguments_;
};

template <class F, class... P>
auto make_recomputation(F&& fn, const std::tuple<P...>& placed) {
  auto kept = std::apply(
      [](const auto&... p) { return std::tuple<decltype(kept_argument(p))...>{kept_argument(p)...}; }, placed);
  return std::make_unique<FunctionRecomputation<F&&, decltype(kept)>>(std::forward<F>(fn), std::move(kept));
}

}  // namespace detail

/// `fn(args...)`, whose intermediate tensors are not kept for backward: backward calls fn once more and goes on through
/// that call. Of the arguments, tensors (also in vectors, pairs, tuples) are kept as they are and all others are
/// copied, so they must be copyable; fn is kept as a copy, a module by reference: what it refers to must live until
/// backward. Gradients reach every tensor that fn uses, arguments or not; they and the communication for them are those
/// of `fn(args...)`, bit for bit, with fn's own communication once more. Under NoGrad, and where nothing requires grad,
/// it is just a call.
///
/// The second call sees what the first one saw: random numbers (drawn from this rank's stream, which then goes on where
/// it was), ambient mesh, training or evaluation mode of the modules called, forbidden redistributions. fn must do the
/// same both times and have no other effects; what it writes, such as statistics, it writes twice. Throws GradError in
/// backward if an argument, or a leaf that fn uses, was written in place since, or if the second call gives results of
/// other types. No gradient can be taken inside fn (GradError).
template <class F, class... A>
auto checkpoint(F&& fn, A&&... args) {
  static_assert((detail::can_keep<A> && ...), "arguments of a checkpointed function are kept and must be copyable");
  using Result = std::decay_t<std::invoke_result_t<
      F&, decltype(detail::placed_argument(std::declval<detail::CheckpointCall&>(), std::declval<A>()).take())...>>;
  if constexpr (!detail::gives_tensors<Result>()) {
    return std::invoke(fn, std::forward<A>(args)...);
  } else {
    detail::CheckpointCall call;
    auto inputs = detail::placed_arguments(call, std::forward<A>(args)...);
    auto run = [&](auto& function) {
      return std::apply([&](auto&... input) { return Result(std::invoke(function, input.take()...)); }, inputs);
    };
    if (!call.records()) return run(fn);
    auto again = detail::make_recomputation(std::forward<F>(fn), inputs);
    call.begin();
    Result result = run(again->fn);
    std::vector<Tensor> outputs = call.finish(detail::list_tensors(result), std::move(again));
    size_t i = 0;
    detail::each_tensor(result, [&](Tensor& t) { t = outputs[i++]; });
    return result;
  }
}

/// From now on calls the modules of `model` that these names or patterns cover ("blocks.*", "blocks.*.mlp"; "" is the
/// model) by `checkpoint`, and no others; `{}` ends it. Throws PlanError, which lists the nearest names, for one that
/// covers no module with an `operator()`.
void set_recompute(ModuleBase& model, const std::vector<std::string>& patterns);
/// The same for every module of every list (nn::List) that is in no other such module: the blocks of a transformer.
/// Throws PlanError if the model has no list.
void set_full_recompute(ModuleBase& model);

}  // namespace cleave::nn
