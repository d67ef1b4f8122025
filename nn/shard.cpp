#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/nn/internal/resolve_plan.h>
#include <cleave/nn/shard.h>

namespace cleave::nn {

namespace {

void require_no_gradient(const detail::ParameterState& state) {
  const auto* meta = state.tensor.impl()->autograd;
  if (meta && (meta->grad.defined() || autograd::has_pending(state.tensor)))
    throw GradError("[shard] parameter " + state.path +
                    " has a gradient, which would be lost; call zero_grad() on the model or its optimizer first");
}

int64_t parts(const dist::LayoutData* layout) { return layout->mesh->size_of(layout->split()); }

// Where the update is made, what the gradient is synced to, and whether that is done as soon as it is complete.
void place_gradient(detail::ParameterState& state, const detail::StoragePlan& plan) {
  auto& meta = autograd::meta(state.tensor);
  const dist::LayoutData* gradient = plan.gradient ? plan.gradient : plan.storage;
  state.state_layout = plan.state ? plan.state : parts(gradient) > parts(plan.storage) ? gradient : plan.storage;
  bool late = parts(state.state_layout) > parts(gradient);
  meta.gradient_layout = late ? state.state_layout : plan.gradient;
  autograd::set_reduces_early(state.tensor, !late && plan.gradient && parts(gradient) > parts(plan.storage));
}

void place_state(detail::ParameterState& state, const detail::StoragePlan& plan) {
  NoGrad off;
  const Tensor& old = state.tensor;
  Tensor placed;
  if (state.deferred || state.device == Device::Meta)
    placed = detail::make_elements(state, plan.storage);
  else if (old.is_distributed())
    placed = dist::redistribute_data(old, plan.storage, "shard");
  else
    placed = dist::distribute(old.detach(), dist::Layout(plan.storage));
  // A handle of its own: what it replaces keeps its place on the tape.
  if (placed.impl() == old.impl()) placed = placed.detach();
  detail::replace_tensor(state, placed);
  state.use = plan.use;
  if (state.trained) place_gradient(state, plan);
}

}  // namespace

void shard(ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan) {
  std::vector<detail::PlacedState> states = detail::resolve_parameters(model, mesh, plan);
  std::vector<detail::PlacedModule> modules = detail::resolve_ports(model, mesh, plan);
  for (const auto& s : states)
    if (s.state->trained) require_no_gradient(*s.state);
  for (const auto& s : states) place_state(*s.state, s.plan);
  for (auto& m : modules) detail::place_module(*m.module, mesh.state(), std::move(m.inputs), std::move(m.outputs));
}

namespace detail {

FunctionPlan read_layouts(const char* op, dist::DeviceMesh mesh, const FunctionLayouts& layouts) {
  FunctionPlan plan{mesh, {}, {}};
  auto read = [&](const std::vector<std::string>& texts, const char* what, std::vector<dist::Layout>& to) {
    for (size_t i = 0; i < texts.size(); ++i) {
      try {
        to.push_back(mesh.layout(texts[i]));
      } catch (const LayoutError& e) {
        throw LayoutError("[" + std::string(op) + "] " + what + " " + std::to_string(i) + ": " + e.what());
      }
    }
  };
  read(layouts.in, "input", plan.in);
  read(layouts.out, "output", plan.out);
  return plan;
}

Tensor place_tensor(const Tensor& x, dist::Layout layout) {
  return x.is_distributed() ? dist::redistribute(x, layout) : dist::distribute(x, layout);
}

void require_count(const char* op, const char* what, size_t got, size_t declared) {
  if (got != declared)
    throw LayoutError("[" + std::string(op) + "] the call has " + std::to_string(got) + " " + what + " tensors and ." +
                      (*what == 'i' ? "in" : "out") + " names " + std::to_string(declared) +
                      " layouts; give each its own");
}

Tensor FunctionCall::operator()(const Tensor& input) {
  size_t i = inputs_++;
  if (i >= plan_.in.size() || !input.defined()) return input;
  return place_tensor(input, plan_.in[i]);
}

void FunctionCall::begin() {
  require_count("shard", "input", inputs_, plan_.in.size());
  memo_.emplace();
  mesh_.emplace(plan_.mesh);
}

void FunctionCall::end() {
  mesh_.reset();
  memo_.reset();
}

Tensor FunctionCall::output(const Tensor& y) {
  size_t i = outputs_++;
  if (i >= plan_.out.size() || !y.defined()) return y;
  return dist::redistribute(y, plan_.out[i]);
}

void FunctionCall::finish() const { require_count("shard", "output", outputs_, plan_.out.size()); }

}  // namespace detail
}  // namespace cleave::nn
