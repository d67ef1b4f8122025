#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/host.h>
#include <cleave/optim/internal/names.h>
#include <cleave/optim/internal/owned.h>
#include <cleave/optim/internal/updated.h>
#include <cleave/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace cleave::optim {

namespace {

using dist::LayoutData;
namespace core = cleave::detail;
using detail::in_layout, detail::own_copy, detail::working;

Shape with_ones(Shape shape, uint32_t dims) {
  for (int d = 0; d < shape.rank(); ++d)
    if (dims >> d & 1) shape[d] = 1;
  return shape;
}

const LayoutData* without_splits(const LayoutData* layout, uint32_t dims) {
  if (!layout || !dims) return layout;
  LayoutData content = *layout;
  for (int d = 0; d < content.rank; ++d)
    if (dims >> d & 1) content.dims[static_cast<size_t>(d)] = {};
  return layout->mesh->intern(content);
}

// Where the update is made: where the plan says, else the parameter's layout, or its gradient's if that is split over
// more ranks.
const LayoutData* owner_layout(const nn::Parameter& parameter, const Tensor& gradient) {
  if (const LayoutData* owner = parameter.state()->state_layout) return owner;
  const LayoutData *p = parameter.tensor().impl()->layout, *g = gradient.impl()->layout;
  if (!p || !g || p->mesh != g->mesh || g->partial) return p;
  return g->mesh->size_of(g->split()) > p->mesh->size_of(p->split()) ? g : p;
}

// Whether these blocks are the master's, rounded: then a parameter was written and put back. Without elements they are.
bool rounds_to(const Tensor& master, const Tensor& owned) {
  Tensor rounded = own_copy(master, owned.dtype()).local();
  return rounded.device() == Device::Meta || equal(rounded, owned.local());
}

const char* const kNumber = "optimizer.step";

Tensor number(int64_t value) {
  Tensor out = core::make_tensor({}, DType::i64, Device::Cpu);
  *out.data<int64_t>() = value;
  return out;
}

int64_t read_number(const std::string& name, const Tensor& x) {
  if (x.dim() != 0) throw ShapeError("[load_state] " + name + " is " + to_string(x.type()) + " and must be a scalar");
  if (is_floating(x.dtype()) || x.dtype() == DType::boolean)
    throw DTypeError("[load_state] " + name + " is " + to_string(x.type()) + " and must be an integer");
  Tensor host = core::dense_copy(dist::full_tensor(x).detach(), DType::i64);
  int64_t value = *host.data<int64_t>();
  if (value < 0) throw ValueError("[load_state] " + name + " is " + std::to_string(value) + ", before the start");
  return value;
}

}  // namespace

void detail::refuse_group(size_t group, size_t groups) {
  throw ValueError("[optimizer] there is no group " + std::to_string(group) + "; there are " + std::to_string(groups) +
                   ", counted from 0");
}

void detail::refuse_changed_groups() {
  throw ValueError(
      "[optimizer] the parameters of its groups are not those that it was made with; give it all groups at the start, "
      "or make an optimizer of its own for new parameters");
}

void detail::check_rate(size_t group, double lr, double factor, int64_t step) {
  double rate = lr * factor;
  if (rate >= 0 && std::isfinite(rate)) return;
  throw ValueError("[optimizer] group " + std::to_string(group) + " has the rate " + std::to_string(rate) +
                   " at step " + std::to_string(step) + ": lr " + std::to_string(lr) + " times the factor " +
                   std::to_string(factor) + " of its schedule and set_lr_factor; it must be finite and not negative");
}

Optimizer::Optimizer(std::vector<nn::Parameter> parameters)
    : parameters_(std::move(parameters)), updated_(std::make_unique<detail::Updated>()) {
  if (parameters_.empty()) throw ValueError("[optimizer] there are no parameters to optimize");
  std::set<const core::TensorImpl*> seen;
  for (const nn::Parameter& p : parameters_)
    if (!seen.insert(p.tensor().impl()).second)
      throw ValueError("[optimizer] parameter " + p.name() + " stands twice; each belongs to one group");
  names_ = detail::names_of(parameters_, "optimizer");
  slots_.resize(parameters_.size());
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_grad() {
  for (const nn::Parameter& p : parameters_) p.zero_grad();
}

void Optimizer::set_step(int64_t number) {
  if (number < 0) throw ValueError("[set_step] step " + std::to_string(number) + " is before the start");
  step_number_ = number;
}

void Optimizer::update_all(std::span<const Update> updates) {
  for (const Update& u : updates) update(u);
}

uint32_t Optimizer::summed_dims(const std::string&, const Shape&) const { return 0; }

void Optimizer::step() {
  dist::PhaseScope phase("optimizer");
  NoGrad off;
  check_groups();
  nn::sync_gradients(parameters_);
  *updated_ = {};  // what a step that failed has left
  stepped_.clear();
  std::vector<Work> kept;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i].tensor();
    if (!p.requires_grad() || !p.grad().defined() || p.impl()->absent) continue;
    Work work = begin_update(i);
    if (together()) {
      kept.push_back(std::move(work));
      continue;
    }
    update(work.update);
    end_update(work);
  }
  if (!kept.empty()) {
    std::vector<Update> updates;
    for (const Work& work : kept) updates.push_back(work.update);
    update_all(updates);
    for (Work& work : kept) end_update(work);
  }
  updated_->bring_back();
  for (size_t i : stepped_) note_update(i);
  stepped_.clear();
  ++step_number_;
}

Optimizer::Work Optimizer::begin_update(size_t index) {
  const Tensor& stored = parameters_[index].tensor();
  Slot& slot = slots_[index];
  Tensor gradient = stored.grad();
  const LayoutData* layout = owner_layout(parameters_[index], gradient);
  gradient = in_layout(gradient, layout);
  Tensor owned = in_layout(stored.detach(), layout);
  // A cut may share the parameter's storage; what is written here and what moves back below must be two things.
  bool direct = owned.impl()->layout == stored.impl()->layout;
  Tensor target = owned;
  if (is_half(stored.dtype()))
    target = updated_master(slot, stored, owned);
  else if (!direct)
    target = own_copy(owned, owned.dtype());
  ++slot.step;
  Tensor rounded = direct && rounds() && is_half(stored.dtype()) ? stored.local() : Tensor();
  return {{index, target.local(), gradient.local(), slot.step, layout, rounded}, stored, target, direct};
}

void Optimizer::end_update(Work& work) {
  const Tensor& stored = work.stored;
  const Tensor& target = work.target;
  target.bump_version();
  stepped_.push_back(work.update.index);
  if (!work.direct) return updated_->add(stored, target);
  if (target.impl()->view.data == stored.impl()->view.data) return;
  if (!work.update.rounded.defined()) core::copy_view(stored.device(), core::elements(target), core::elements(stored));
  stored.bump_version();
}

void Optimizer::note_update(size_t index) {
  const Tensor& stored = parameters_[index].tensor();
  slots_[index].storage = stored.storage();
  slots_[index].version = stored.version();
  slots_[index].loaded = false;
}

// Whether nobody wrote to the parameter since its master was updated or loaded.
bool Optimizer::untouched(const Slot& slot, const Tensor& stored) {
  return slot.loaded || (slot.storage == stored.storage() && slot.version == stored.version());
}

Tensor Optimizer::updated_master(Slot& slot, const Tensor& stored, const Tensor& owned) {
  Tensor& kept = slot.tensors["master"];
  if (kept.defined() && kept.impl()->layout != owned.impl()->layout)
    kept = own_copy(in_layout(kept, owned.impl()->layout), DType::f32);
  if (!kept.defined() || !(untouched(slot, stored) || rounds_to(kept, owned))) kept = own_copy(owned, DType::f32);
  return kept;
}

Tensor Optimizer::master(size_t index) const {
  NoGrad off;
  const Slot& slot = slots_[index];
  const Tensor& stored = parameters_[index].tensor();
  auto found = slot.tensors.find("master");
  if (found == slot.tensors.end() || stored.impl()->absent) return {};
  const Tensor& master = found->second;
  if (untouched(slot, stored)) return master;
  // Ranks may differ in this: each looks at its own block, and the layout is the same either way.
  Tensor owned = in_layout(stored.detach(), master.impl()->layout);
  return rounds_to(master, owned) ? master : own_copy(owned, DType::f32);
}

bool Optimizer::has_state(const Update& u, const char* name) const {
  auto found = slots_[u.index].tensors.find(name);
  return found != slots_[u.index].tensors.end() && found->second.defined();
}

Tensor Optimizer::state_block(const Update& u, const char* name, double initial) {
  Tensor& kept = slots_[u.index].tensors[name];
  const nn::Parameter& p = parameters_[u.index];
  uint32_t summed = summed_dims(name, p.shape());
  const LayoutData* layout = without_splits(u.layout, summed);
  if (!kept.defined()) {
    kept = core::make_tensor(with_ones(p.shape(), summed), with_ones(u.value.shape(), summed), working(p.dtype()),
                             u.value.device(), layout);
    core::fill_view(kept.device(), kept.impl()->view, initial);
  } else if (kept.impl()->layout != layout) {
    kept = own_copy(in_layout(kept, layout), working(p.dtype()));
  }
  return kept.local();
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].step == 0) continue;
    out.emplace_back(names_[i] + ".step", number(slots_[i].step));
    for (const auto& [name, tensor] : slots_[i].tensors) out.emplace_back(names_[i] + "." + name, tensor);
  }
  if (scheduled()) out.emplace_back(kNumber, number(step_number_));
  return out;
}

/// What load_state takes, read and verified.
struct Optimizer::Loaded {
  std::map<size_t, int64_t> steps;
  std::vector<std::tuple<size_t, std::string, Tensor>> tensors;
  std::optional<int64_t> number;
};

size_t Optimizer::owner_of(const std::string& full, const std::string& name) const {
  std::vector<std::string> known = state_names();
  known.insert(known.end(), {"step", "master"});
  auto at = std::find(names_.begin(), names_.end(), full.substr(0, full.rfind('.')));
  if (at == names_.end() || std::find(known.begin(), known.end(), name) == known.end()) {
    std::string kept;
    for (const std::string& state : known) kept += (kept.empty() ? "" : ", ") + state;
    throw ValueError("[load_state] \"" + full + "\" is not \"<parameter>.<state>\" of this optimizer, which " +
                     (at == names_.end() ? "has no such parameter" : "keeps " + kept));
  }
  return static_cast<size_t>(at - names_.begin());
}

Optimizer::Loaded Optimizer::checked_state(const std::vector<NamedTensor>& state) const {
  Loaded out;
  std::set<std::string> seen;
  for (const auto& [full, tensor] : state) {
    if (!seen.insert(full).second) throw ValueError("[load_state] \"" + full + "\" is given twice");
    if (full == kNumber) {
      if (!scheduled())
        throw ValueError(std::string("[load_state] ") + kNumber +
                         " is where the schedules of groups are, and no group of this optimizer has one; give groups "
                         "their schedules, or leave it out");
      out.number = read_number(full, tensor);
      continue;
    }
    size_t dot = full.rfind('.');
    std::string name = dot == std::string::npos ? "" : full.substr(dot + 1);
    size_t i = owner_of(full, name);
    if (name == "step") {
      out.steps[i] = read_number(full, tensor);
      continue;
    }
    Shape wanted = with_ones(parameters_[i].shape(), summed_dims(name, parameters_[i].shape()));
    if (!(tensor.shape() == wanted))
      throw ShapeError("[load_state] " + full + " is " + to_string(tensor.type()) +
                       " but this state of the parameter has the shape " + to_string(wanted));
    if (!is_floating(tensor.dtype()))
      throw DTypeError("[load_state] " + full + " is " + to_string(tensor.type()) + " and must be floating");
    out.tensors.emplace_back(i, name, own_copy(tensor, working(parameters_[i].dtype())));
  }
  if (scheduled() && !out.number && !state.empty())
    throw ValueError(std::string("[load_state] ") + kNumber +
                     " is missing: the state is of an optimizer whose groups have no schedules, and here they would "
                     "begin anew; add it, a scalar i64, with the step from which they are to go on");
  for (const auto& [i, name, tensor] : out.tensors)
    if (!out.steps.count(i) && slots_[i].step == 0)
      throw ValueError("[load_state] \"" + names_[i] + ".step\" is missing, and " + name + " of that parameter is not");
  return out;
}

void Optimizer::load_state(const std::vector<NamedTensor>& state) {
  NoGrad off;
  Loaded loaded = checked_state(state);
  for (auto [i, step] : loaded.steps) slots_[i].step = step;
  for (auto& [i, name, tensor] : loaded.tensors) {
    slots_[i].tensors[name] = tensor;
    slots_[i].loaded = true;
  }
  if (loaded.number) step_number_ = *loaded.number;
}

std::vector<nn::Parameter> parameters_of(const std::vector<Tensor>& tensors) {
  std::vector<nn::Parameter> out;
  for (size_t i = 0; i < tensors.size(); ++i) out.emplace_back(tensors[i], std::to_string(i));
  return out;
}

std::pair<std::vector<nn::Parameter>, std::vector<nn::Parameter>> partition(
    const std::vector<nn::Parameter>& parameters, const std::function<bool(const nn::Parameter&)>& predicate) {
  std::pair<std::vector<nn::Parameter>, std::vector<nn::Parameter>> out;
  for (const nn::Parameter& p : parameters) (predicate(p) ? out.first : out.second).push_back(p);
  return out;
}

bool decays(const nn::Parameter& parameter) {
  const std::string& name = parameter.name();
  return parameter.shape().rank() >= 2 && name.substr(name.rfind('.') + 1) != "bias";
}

std::function<dist::Layout(const std::string&, const TensorType&)> state_layouts(
    const std::vector<nn::Parameter>& parameters) {
  std::map<std::string, nn::Parameter> known;
  for (const nn::Parameter& p : parameters) known.emplace(p.name(), p);
  return [known = std::move(known)](const std::string& name, const TensorType& type) -> dist::Layout {
    auto it = known.find(name.substr(0, name.rfind('.')));
    bool lies = it != known.end() && it->second.is_distributed() && it->second.shape() == type.shape;
    return lies ? it->second.state_layout() : dist::Layout();
  };
}

}  // namespace cleave::optim
