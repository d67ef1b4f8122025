#include <cleave/autograd/memo.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/observer.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/redistribution.h>
#include <cleave/nn/gather.h>
#include <cleave/nn/internal/parameter_names.h>
#include <cleave/nn/parameter.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace cleave::nn::detail {

/// Parameters by the module that read them, in the order of a pass.
struct GatherOrder {
  using Group = std::vector<std::weak_ptr<const ParameterState>>;
  std::vector<Group> groups;
};

namespace {

/// A gather under way for a parameter that is not yet asked for.
struct Started {
  const ParameterState* state;
  Tensor source, result;
  uint32_t version;
};

struct Pass {
  uint64_t module = 0;                       // number of the innermost running module; 0: none
  uint64_t numbers = 0, last_module = 0;     // last: of the newest group
  std::shared_ptr<GatherOrder> now, before;  // `before` is null once the pass has left it
  std::vector<Started> started;
};
thread_local Pass pass;

bool is_gathered(const ParameterState& state) { return state.use && state.use != state.tensor.impl()->layout; }

void start_group(const GatherOrder::Group& group) {
  for (const auto& weak : group) {
    auto state = weak.lock();
    if (!state || !is_gathered(*state) || autograd::recall(state->tensor, state->use).defined()) continue;
    if (Observer::current()) name_storage(state->tensor.storage(), state->path);
    pass.started.push_back({state.get(), state->tensor,
                            dist::start_redistribution(state->tensor, state->use, "parameter"),
                            state->tensor.version()});
  }
}

/// The result for `state` if it was started and still holds; undefined otherwise.
Tensor take(const ParameterState& state) {
  auto it = std::find_if(pass.started.begin(), pass.started.end(), [&](const Started& s) { return s.state == &state; });
  if (it == pass.started.end()) return {};
  Started found = std::move(*it);
  pass.started.erase(it);
  bool holds = found.source.impl() == state.tensor.impl() && found.version == state.tensor.version() &&
               found.result.impl()->layout == state.use;
  return holds ? found.result : Tensor();
}

/// Notes that the running module gathers `state`; the group to start now, if any.
const GatherOrder::Group* note(const ParameterState& state) {
  if (!pass.now) {
    pass.now = std::make_shared<GatherOrder>();
    pass.before = state.gathers;
  }
  auto& groups = pass.now->groups;
  bool opens = groups.empty() || pass.last_module != pass.module;
  if (opens) groups.emplace_back();
  pass.last_module = pass.module;
  groups.back().push_back(state.weak_from_this());
  if (!opens || !pass.before) return nullptr;
  const auto& known = pass.before->groups;
  size_t at = groups.size() - 1;
  if (at >= known.size() || known[at].front().lock().get() != &state) {
    pass.before = nullptr;
    pass.started.clear();
    return nullptr;
  }
  return at + 1 < known.size() ? &known[at + 1] : nullptr;
}

void end_pass(bool complete) {
  if (complete && pass.now)
    if (auto first = pass.now->groups.front().front().lock()) first->gathers = pass.now;
  pass.now = pass.before = nullptr;
  pass.started.clear();
}

}  // namespace

Tensor gather(const ParameterState& state) {
  const Tensor& x = state.tensor;
  if (!pass.module || !autograd::overlapping()) return autograd::redistribute_taped(x, state.use, "parameter", true);
  if (Tensor known = autograd::recall(x, state.use); known.defined()) return known;
  const GatherOrder::Group* next = note(state);
  Tensor result = take(state);
  if (!result.defined()) result = dist::redistribute_data(x, state.use, "parameter");
  if (next) start_group(*next);
  return autograd::tape_redistribution(x, state.use, result, "parameter", true);
}

GatherScope::GatherScope() : outer_(pass.module), exceptions_(std::uncaught_exceptions()) {
  pass.module = ++pass.numbers;
}

GatherScope::~GatherScope() {
  pass.module = outer_;
  if (!outer_) end_pass(std::uncaught_exceptions() == exceptions_);
}

}  // namespace cleave::nn::detail
