// Activation checkpointing: what one call does, and its node.
#include <cleave/autograd/memo.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/recipe.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/observer.h>
#include <cleave/core/random.h>
#include <cleave/dist/ambient.h>
#include <cleave/nn/internal/first_order.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/recompute.h>
#include <cleave/ops/autocast.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace cleave::nn {

namespace detail {

namespace {

using autograd::Edge;
using autograd::Node;

/// The modes of the modules that a function called, from the outermost down.
struct Modes {
  std::vector<std::pair<ModuleBase*, bool>> training;
  std::unordered_set<const ModuleBase*> known;

  void note(const ModuleBase& module) {
    if (!known.insert(&module).second) return;
    training.emplace_back(const_cast<ModuleBase*>(&module), module.training());
    for (const ModuleBase* child : module.children()) note(*child);
  }
};

/// What a function may see besides its arguments.
struct Surroundings {
  cleave::detail::RandomKey random = cleave::detail::random_state();
  const dist::MeshState* mesh = dist::ambient_mesh();
  bool forbidden = dist::implicit_redistribution_forbidden();
  std::optional<DType> autocast = autocast_dtype();
  std::vector<std::pair<ModuleBase*, bool>> training = {};
};

class RestoredModes {
 public:
  explicit RestoredModes(const std::vector<std::pair<ModuleBase*, bool>>& training) {
    for (const auto& [module, on] : training) {
      before_.emplace_back(module, module->training());
      set_training(*module, on);
    }
  }
  ~RestoredModes() {
    for (const auto& [module, on] : before_) set_training(*module, on);
  }
  RestoredModes(const RestoredModes&) = delete;
  RestoredModes& operator=(const RestoredModes&) = delete;

 private:
  std::vector<std::pair<ModuleBase*, bool>> before_;
};

class RestoredStream {
 public:
  explicit RestoredStream(cleave::detail::RandomKey state) { cleave::detail::set_random_state(state); }
  ~RestoredStream() { cleave::detail::set_random_state(before_); }
  RestoredStream(const RestoredStream&) = delete;
  RestoredStream& operator=(const RestoredStream&) = delete;

 private:
  cleave::detail::RandomKey before_ = cleave::detail::random_state();
};

/// The call on the tape. Its input edges are all that its function used of the tape outside: each leaf as often as it
/// will get a term, so that the engine knows when it has them all.
class CheckpointNode : public Node {
 public:
  CheckpointNode() : Node("checkpoint", autograd::Producer::local_several) {}

  Surroundings around;
  std::vector<autograd::SavedTensor> arguments;
  std::vector<std::pair<Tensor, uint32_t>> leaves;  // and their versions
  std::vector<size_t> positions;                    // of the outputs, among the function's results
  size_t results = 0;
  std::shared_ptr<Recomputation> again;

  std::vector<autograd::Cotangent> backward(std::span<const autograd::Cotangent>) override { return {}; }
  bool recomputes() const override { return true; }

  std::vector<Tensor> recompute() override {
    if (!again)
      throw GradError(
          "[checkpoint] backward ran through this call already and let go of its inputs; pass {.retain_graph = true} "
          "to the first call");
    std::vector<Tensor> inputs;
    for (const autograd::SavedTensor& s : arguments) inputs.push_back(s.get("checkpoint"));
    for (const auto& [leaf, version] : leaves) autograd::SavedTensor{leaf, version}.get("checkpoint");
    std::shared_ptr<Recomputation> function = again;
    if (last_run) release_saved();
    NamedSpan span(SpanKind::scope, "recompute");
    EnableGrad on;
    autograd::RegatherScope keep(autograd::Regather::nothing);  // its backward follows at once
    DifferentiatedScope inside;
    Autocast cast(around.autocast);
    dist::UseMesh mesh(around.mesh);
    dist::ForbidImplicitRedistribution forbid(around.forbidden);
    RestoredModes modes(around.training);
    RestoredStream stream(around.random);
    autograd::MemoScope memo(true);
    uint64_t before = newest();
    return outputs_of(function->run(std::move(inputs)), before);
  }

  void release_saved() override {
    again = {};
    arguments.clear();
  }

 private:
  std::vector<Tensor> outputs_of(std::vector<Tensor> found, uint64_t before) const {
    if (found.size() != results)
      throw GradError("[checkpoint] the function gave " + std::to_string(results) + " tensors, and " +
                      std::to_string(found.size()) + " when backward called it again; it must do the same both times");
    std::vector<Tensor> out;
    for (size_t i = 0; i < positions.size(); ++i) {
      const Tensor& y = found[positions[i]];
      TensorType expected{outputs[i].dtype, outputs[i].global, outputs[i].layout};
      std::string got = !y.defined() ? "an undefined tensor" : describe(y.type());
      if (y.defined() && y.type() == expected) {
        Edge edge = autograd::edge_of(y);
        if (edge.node && edge.node->sequence() > before) {
          out.push_back(y);
          continue;
        }
        got += ", which it did not compute on the tape,";
      }
      throw GradError("[checkpoint] result " + std::to_string(positions[i]) + " of the function was " +
                      describe(expected) + ", and " + got +
                      " when backward called it again; it must do the same both times");
    }
    return out;
  }
};

thread_local std::vector<Modes*> watching;

bool is_inside(const Tensor& y, const Node& node) {
  Edge edge = autograd::edge_of(y);
  return edge.node && edge.node->sequence() > node.sequence();
}

// Takes as the node's inputs what the nodes recorded in its function use of the tape outside.
void take_edges(CheckpointNode& node, std::vector<autograd::NodeRef> open) {
  std::unordered_set<const void*> seen;
  for (const auto& n : open) seen.insert(n.get());
  while (!open.empty()) {
    autograd::NodeRef from = std::move(open.back());
    open.pop_back();
    for (const Edge& e : from->inputs) {
      if (e.leaf.defined()) {
        node.inputs.push_back(e);
        if (seen.insert(e.leaf.impl()).second) node.leaves.emplace_back(e.leaf, e.leaf.version());
      } else if (e.node && seen.insert(e.node.get()).second) {
        if (e.node->sequence() > node.sequence())
          open.push_back(e.node);
        else
          node.inputs.push_back(e);
      }
    }
  }
}

}  // namespace

struct CheckpointCall::State {
  autograd::NodeRef node{new CheckpointNode};
  std::vector<Tensor> inputs;
  Modes modes;
  std::optional<RecordOnly> record;
  std::optional<DifferentiatedScope> inside;
  std::optional<autograd::MemoScope> memo;
  bool watches = false;

  CheckpointNode& call() { return static_cast<CheckpointNode&>(*node.get()); }
  void end() {
    memo.reset();
    inside.reset();
    record.reset();
    if (std::exchange(watches, false)) watching.pop_back();
  }
  ~State() { end(); }
};

CheckpointCall::CheckpointCall() : state_(grad_enabled() ? new State : nullptr) {}
CheckpointCall::~CheckpointCall() = default;

Tensor CheckpointCall::operator()(const Tensor& input) {
  if (!state_) return input;
  autograd::SavedTensor& saved = state_->call().arguments.emplace_back();
  if (input.defined()) saved.save(input);
  return input;
}

void CheckpointCall::begin() {
  State& s = *state_;
  watching.push_back(&s.modes);
  s.watches = true;
  s.record.emplace();
  s.inside.emplace();
  s.memo.emplace(true);
}

std::vector<Tensor> CheckpointCall::finish(const std::vector<Tensor>& results, std::unique_ptr<Recomputation> again) {
  State& s = *state_;
  s.end();
  CheckpointNode& call = s.call();
  std::vector<Tensor> outputs = results;
  std::vector<autograd::NodeRef> made;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& y = results[i];
    if (!is_inside(y, call)) continue;
    auto same = [&](size_t k) { return results[k].impl() == y.impl(); };
    if (auto first = std::find_if(call.positions.begin(), call.positions.end(), same); first != call.positions.end()) {
      outputs[i] = outputs[*first];
      continue;
    }
    outputs[i] = y.detach();
    outputs[i].impl()->parameter = y.impl()->parameter;
    call.add_output(outputs[i]);
    call.positions.push_back(i);
    made.push_back(autograd::edge_of(y).node);
  }
  if (made.empty()) return outputs;
  take_edges(call, std::move(made));
  call.results = results.size();
  call.again = std::move(again);
  call.around.training = std::move(s.modes.training);
  return outputs;
}

void note_modes(const ModuleBase& module) {
  for (Modes* modes : watching) modes->note(module);
}

void refuse_to_keep(const ModuleBase& module) {
  throw ValueError("[checkpoint] " + (module.path().empty() ? "the model" : module.path()) +
                   " takes an argument that cannot be copied, and backward needs it again; leave this module out of "
                   "set_recompute");
}

}  // namespace detail

namespace {

using Names = std::vector<std::pair<std::string, ModuleBase*>>;

void clear(const Names& modules) {
  for (const auto& [name, m] : modules) detail::set_recomputes(*m, false);
}

// Marks the modules of lists, from the outermost lists down to the first that can be called.
int mark_lists(ModuleBase& module) {
  int marked = 0;
  for (ModuleBase* child : module.children()) {
    if (!module.callable() && child->callable()) {
      detail::set_recomputes(*child, true);
      ++marked;
    } else {
      marked += mark_lists(*child);
    }
  }
  return marked;
}

}  // namespace

void set_recompute(ModuleBase& model, const std::vector<std::string>& patterns) {
  Names modules = model.named_modules();
  std::vector<ModuleBase*> chosen;
  for (const std::string& pattern : patterns) {
    size_t before = chosen.size();
    std::vector<std::string> names;
    for (const auto& [name, m] : modules) {
      if (!m->callable()) continue;
      if (detail::matches(pattern, name)) chosen.push_back(m);
      names.push_back(name.empty() ? "\"\"" : name);
    }
    if (chosen.size() == before)
      throw PlanError("[set_recompute] \"" + pattern + "\" covers no module that can be called" +
                      detail::nearest(pattern, names));
  }
  clear(modules);
  for (ModuleBase* m : chosen) detail::set_recomputes(*m, true);
}

void set_full_recompute(ModuleBase& model) {
  clear(model.named_modules());
  if (mark_lists(model) == 0)
    throw PlanError("[set_full_recompute] the model has no list of modules; name those to recompute by set_recompute");
}

}  // namespace cleave::nn
