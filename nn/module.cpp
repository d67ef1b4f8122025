// The running operator() of a module.
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/nn/module.h>
#include <cleave/nn/shard.h>

namespace cleave::nn::detail {

namespace {

std::string shown(const ModuleBase& m) { return m.path().empty() ? "the model" : m.path(); }

// The layout that the plan gives the tensor at this position, if any.
dist::Layout find(const PortLayouts& ports, int position, std::span<const char* const> names) {
  std::string number = std::to_string(position);
  const char* name = static_cast<size_t>(position) < names.size() ? names[static_cast<size_t>(position)] : "";
  for (const auto& [key, layout] : ports)
    if (key == number || key == name) return layout;
  return {};
}

// Positions that the plan names and the call did not have.
void check_positions(const ModuleBase& m, const PortLayouts& ports, int count, const char* what) {
  for (const auto& [key, layout] : ports)
    if (key.find_first_not_of("0123456789") == std::string::npos && std::stoi(key) >= count)
      throw PlanError("the plan gives " + std::string(what) + " " + key + " of " + shown(m) + " the layout \"" +
                      to_string(layout) + "\", but there are " + std::to_string(count) + " " + what + " tensors");
}

template <class F>
Tensor placed(const ModuleBase& m, const char* what, int position, F place) {
  try {
    return place();
  } catch (const LayoutError& e) {
    throw LayoutError(std::string(what) + " " + std::to_string(position) + " of " + shown(m) + ": " + e.what());
  }
}

}  // namespace

Tensor ModuleCall::operator()(const Tensor& input) {
  int position = inputs_++;
  Tensor x = take_input(input, position);
  if (observer_) {
    if (input.defined() && x.type() != input.type())
      observer_->placed(module_, "input", position, input.type(), x.type());
    seen_.push_back(x);
  }
  return x;
}

Tensor ModuleCall::take_input(const Tensor& input, int position) {
  if (!module_.is_sharded() || !input.defined()) return input;
  dist::Layout layout = find(module_.input_layouts(), position, module_.input_names());
  if (layout.defined()) return placed(module_, "input", position, [&] { return place_tensor(input, layout); });
  if (!input.is_distributed())
    throw LayoutError("input " + std::to_string(position) + " of " + shown(module_) + ", " + to_string(input.type()) +
                      ", is plain, and the module is on " + to_string(module_.mesh()) +
                      "; name its layout in the plan (\"" + (module_.path().empty() ? "" : module_.path() + ".") +
                      "input\") or use replicate(x, mesh)");
  return input;
}

void ModuleCall::begin() {
  check_positions(module_, module_.input_layouts(), inputs_, "input");
  memo_.emplace();
  gathers_.emplace();
  if (module_.is_sharded()) mesh_.emplace(module_.mesh());
  note_modes(module_);
}

void ModuleCall::end() {
  mesh_.reset();
  gathers_.reset();
  memo_.reset();
}

Tensor ModuleCall::output(const Tensor& y) {
  int position = outputs_++;
  if (!module_.is_sharded() || !y.defined()) return y;
  dist::Layout layout = find(module_.output_layouts(), position, {});
  if (!layout.defined()) return y;
  Tensor out = placed(module_, "output", position, [&] { return dist::redistribute(y, layout); });
  if (observer_ && out.type() != y.type()) observer_->placed(module_, "output", position, y.type(), out.type());
  return out;
}

void ModuleCall::finish(const std::vector<Tensor>& outputs) const {
  check_positions(module_, module_.output_layouts(), outputs_, "output");
  if (observer_) observer_->leave(module_, seen_, outputs);
}

}  // namespace cleave::nn::detail
