#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/dist/together.h>
#include <cleave/optim/optimizer.h>

#include <algorithm>

namespace cleave::optim {

namespace {

using dist::LayoutData;
namespace core = cleave::detail;

DType working(DType t) { return is_half(t) ? DType::f32 : t; }

// A tensor of its own with x's type and elements, in another dtype.
Tensor own_copy(const Tensor& x, DType dtype) {
  const auto& impl = *x.impl();
  Tensor out = core::make_tensor(impl.global, impl.view.shape, dtype, impl.device, impl.layout, impl.absent);
  core::copy_view(impl.device, core::elements(x), out.impl()->view);
  return out;
}

Tensor zeros_of(const Tensor& like, const Shape& global, DType dtype, const LayoutData* layout) {
  const View& block = like.impl()->view;
  Tensor out = core::make_tensor(global, block.shape, dtype, like.device(), layout);
  core::fill_view(out.device(), out.impl()->view, 0.0);
  return out;
}

// Where the update is made: where the plan puts the state, else the parameter's layout, or its gradient's if that is
// split over more ranks (ZeRO-1/2).
const LayoutData* owner_layout(const LayoutData* planned, const Tensor& parameter, const Tensor& gradient) {
  if (planned && parameter.impl()->layout && planned->mesh == parameter.impl()->layout->mesh) return planned;
  const LayoutData *p = parameter.impl()->layout, *g = gradient.impl()->layout;
  if (!p || !g || p->mesh != g->mesh || g->partial) return p;
  return g->mesh->size_of(g->split()) > p->mesh->size_of(p->split()) ? g : p;
}

Tensor in_layout(const Tensor& x, const LayoutData* to) {
  if (x.impl()->layout == to) return x;
  if (!to) return dist::full_tensor(x);
  return x.is_distributed() ? dist::redistribute_data(x, to, "optimizer")
                            : dist::distribute(x.detach(), dist::Layout(to));
}

int64_t read_step(const Tensor& x) {
  Tensor host = core::dense_copy(dist::full_tensor(x).detach(), DType::i64);
  return *host.data<int64_t>();
}

}  // namespace

Optimizer::Optimizer(std::vector<nn::Parameter> parameters) : parameters_(std::move(parameters)) {
  if (parameters_.empty()) throw ValueError("[optimizer] there are no parameters to optimize");
  for (size_t i = 0; i < parameters_.size(); ++i) {
    names_.push_back(parameters_[i].name().empty() ? std::to_string(i) : parameters_[i].name());
    for (size_t j = 0; j < i; ++j)
      if (parameters_[i] == parameters_[j] || parameters_[i].tensor().impl() == parameters_[j].tensor().impl())
        throw ValueError("[optimizer] parameter " + names_[i] + " stands twice; each belongs to one group");
  }
  slots_.resize(parameters_.size());
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_grad() {
  for (const nn::Parameter& p : parameters_) p.zero_grad();
}

void Optimizer::step() {
  dist::PhaseScope phase("optimizer");
  NoGrad off;
  nn::sync_gradients(parameters_);
  dist::GatherBuckets gathers(autograd::bucket_bytes(), "optimizer");
  std::vector<size_t> updated;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i].tensor();
    if (!p.requires_grad() || !p.grad().defined() || p.impl()->absent) continue;
    update_one(i, gathers);
    updated.push_back(i);
  }
  gathers.finish();
  for (size_t i : updated) {
    slots_[i].storage = parameters_[i].tensor().storage();
    slots_[i].version = parameters_[i].tensor().version();
    slots_[i].loaded = false;
  }
}

void Optimizer::update_one(size_t index, dist::GatherBuckets& gathers) {
  const Tensor& stored = parameters_[index].tensor();
  Slot& slot = slots_[index];
  Tensor gradient = stored.grad();
  const LayoutData* layout = owner_layout(parameters_[index].state()->state_layout, stored, gradient);
  gradient = in_layout(gradient, layout);
  Tensor owned = in_layout(stored.detach(), layout);
  // A cut may share the parameter's storage; what is written here and what moves back below must be two things.
  bool direct = owned.impl()->layout == stored.impl()->layout;
  Tensor target = owned;
  if (is_half(stored.dtype()))
    target = master(slot, stored, owned);
  else if (!direct)
    target = own_copy(owned, owned.dtype());

  ++slot.step;
  layout_ = layout;
  update({index, target.local(), gradient.local(), slot.step});
  target.bump_version();

  if (!direct && dist::GatherBuckets::fits(target, stored)) return gathers.add(target, stored);
  if (!direct) target = in_layout(target, stored.impl()->layout);
  if (target.impl()->view.data != stored.impl()->view.data) {
    core::copy_view(stored.device(), core::elements(target), core::elements(stored));
    stored.bump_version();
  }
}

// The f32 copy that a half parameter is updated through; made anew if someone else wrote to the parameter since.
Tensor Optimizer::master(Slot& slot, const Tensor& stored, const Tensor& owned) {
  Tensor& kept = slot.tensors["master"];
  bool current = slot.loaded || (slot.storage == stored.storage() && slot.version == stored.version());
  if (!kept.defined() || !current)
    kept = own_copy(owned, DType::f32);
  else if (kept.impl()->layout != owned.impl()->layout)
    kept = own_copy(in_layout(kept, owned.impl()->layout), DType::f32);
  return kept;
}

Tensor Optimizer::state_block(const Update& u, const char* name) {
  Tensor& kept = slots_[u.index].tensors[name];
  DType dtype = working(parameters_[u.index].dtype());
  if (!kept.defined())
    kept = zeros_of(u.value, parameters_[u.index].shape(), dtype, layout_);
  else if (kept.impl()->layout != layout_)
    kept = own_copy(in_layout(kept, layout_), dtype);
  return kept.local();
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].step == 0) continue;
    Tensor step = core::make_tensor({}, DType::i64, Device::Cpu);
    *step.data<int64_t>() = slots_[i].step;
    out.emplace_back(names_[i] + ".step", step);
    for (const auto& [name, tensor] : slots_[i].tensors) out.emplace_back(names_[i] + "." + name, tensor);
  }
  return out;
}

void Optimizer::load_state(const std::vector<NamedTensor>& state) {
  NoGrad off;
  std::vector<std::string> known = state_names();
  known.insert(known.end(), {"step", "master"});
  for (const auto& [full, tensor] : state) {
    size_t dot = full.rfind('.');
    auto at = std::find(names_.begin(), names_.end(), full.substr(0, dot));
    std::string name = dot == std::string::npos ? "" : full.substr(dot + 1);
    if (at == names_.end() || std::find(known.begin(), known.end(), name) == known.end())
      throw ValueError("[load_state] \"" + full + "\" is not \"<parameter>.<state>\" of this optimizer");
    auto i = static_cast<size_t>(at - names_.begin());
    if (name == "step") {
      slots_[i].step = read_step(tensor);
      continue;
    }
    if (!(tensor.shape() == parameters_[i].shape()))
      throw ShapeError("[load_state] " + full + " is " + to_string(tensor.type()) +
                       " but the parameter has the shape " + to_string(parameters_[i].shape()));
    slots_[i].tensors[name] = own_copy(tensor, working(parameters_[i].dtype()));
    slots_[i].loaded = true;
  }
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

}  // namespace cleave::optim
