#include <cleave/core/error.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/module_base.h>

#include <algorithm>

namespace cleave::nn {

namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

std::string shown(const ModuleBase& m) { return m.path().empty() ? "the model" : m.path(); }

using State = std::shared_ptr<detail::ParameterState>;
using Named = std::vector<std::pair<std::string, State>>;

}  // namespace

ModuleBase::ModuleBase(ModuleBase* parent, std::string name) : parent_(parent), name_(std::move(name)) {
  if (!parent) return;
  parent->require_free(name_);
  path_ = joined(parent->path_, name_);
  parent->children_.push_back(this);
}

ModuleBase::~ModuleBase() {
  for (ModuleBase* child : children_) child->parent_ = nullptr;
  if (parent_) std::erase(parent_->children_, this);
}

void ModuleBase::require_free(const std::string& name) const {
  if (name.empty() || name.find_first_of(".*") != std::string::npos)
    throw ValueError("\"" + name + "\" in " + shown(*this) + ": a name must not be empty nor have a dot or a star");
  auto taken = [&](const detail::Member& m) { return m.name == name && !m.state.expired(); };
  bool used = std::any_of(parameters_.begin(), parameters_.end(), taken) ||
              std::any_of(buffers_.begin(), buffers_.end(), taken) ||
              std::any_of(children_.begin(), children_.end(), [&](const ModuleBase* c) { return c->name_ == name; });
  if (used) throw ValueError("\"" + name + "\" stands twice in " + shown(*this) + "; names in a module must differ");
}

void ModuleBase::add(detail::Member member, bool buffer) {
  auto& list = buffer ? buffers_ : parameters_;
  std::erase_if(list, [](const detail::Member& m) { return m.state.expired(); });
  list.push_back(std::move(member));
}

void ModuleBase::collect(const std::string& prefix, bool buffers, std::vector<detail::Member>& out) const {
  for (const detail::Member& m : buffers ? buffers_ : parameters_)
    if (!m.state.expired()) out.push_back({joined(prefix, m.name), m.state, m.tie});
  for (const ModuleBase* child : children_) child->collect(joined(prefix, child->name_), buffers, out);
}

std::vector<std::pair<std::string, ModuleBase*>> ModuleBase::named_modules() const {
  std::vector<std::pair<std::string, ModuleBase*>> out;
  auto visit = [&](auto& self, const ModuleBase* m, const std::string& path) -> void {
    out.emplace_back(path, const_cast<ModuleBase*>(m));
    for (const ModuleBase* child : m->children_) self(self, child, joined(path, child->name_));
  };
  visit(visit, this, "");
  return out;
}

ModuleBase& ModuleBase::module(std::string_view path) const {
  std::vector<std::string> names;
  for (auto& [name, m] : named_modules()) {
    if (name == path) return *m;
    if (!name.empty()) names.push_back(name);
  }
  throw ValueError(shown(*this) + " has no module \"" + std::string(path) + "\"" + detail::nearest(path, names));
}

std::vector<std::pair<std::string, Parameter>> ModuleBase::named_parameters_with_ties() const {
  std::vector<detail::Member> members;
  collect("", false, members);
  std::vector<std::pair<std::string, Parameter>> out;
  for (const detail::Member& m : members) out.emplace_back(m.name, Parameter(m.state.lock()));
  return out;
}

std::vector<std::pair<std::string, Parameter>> ModuleBase::named_parameters() const {
  std::vector<detail::Member> members;
  collect("", false, members);
  std::vector<std::pair<std::string, Parameter>> out;
  for (const detail::Member& m : members) {
    State state = m.state.lock();
    auto same = [&](const detail::Member& other) { return !other.tie && other.state.lock() == state; };
    bool elsewhere = m.tie && std::any_of(members.begin(), members.end(), same);
    auto listed = [&](const auto& p) { return p.second.state() == state; };
    if (!elsewhere && std::none_of(out.begin(), out.end(), listed)) out.emplace_back(m.name, Parameter(state));
  }
  return out;
}

std::vector<Parameter> ModuleBase::parameters() const {
  std::vector<Parameter> out;
  for (auto& [name, p] : named_parameters()) out.push_back(p);
  return out;
}

Parameter ModuleBase::parameter(std::string_view name) const {
  std::vector<std::string> names;
  for (auto& [n, p] : named_parameters_with_ties()) {
    if (n == name) return p;
    names.push_back(n);
  }
  throw ValueError(shown(*this) + " has no parameter \"" + std::string(name) + "\"" + detail::nearest(name, names));
}

std::vector<std::pair<std::string, Buffer>> ModuleBase::named_buffers() const {
  std::vector<detail::Member> members;
  collect("", true, members);
  std::vector<std::pair<std::string, Buffer>> out;
  for (const detail::Member& m : members) out.emplace_back(m.name, Buffer(m.state.lock()));
  return out;
}

std::vector<Buffer> ModuleBase::buffers() const {
  std::vector<Buffer> out;
  for (auto& [name, b] : named_buffers()) out.push_back(b);
  return out;
}

void ModuleBase::train(bool on) {
  training_ = on;
  for (ModuleBase* child : children_) child->train(on);
}

void ModuleBase::zero_grad() const {
  for (const Parameter& p : parameters()) p.zero_grad();
}

dist::DeviceMesh ModuleBase::mesh() const {
  if (!mesh_) throw LayoutError(shown(*this) + " is on no mesh; call shard(model, mesh, plan) first");
  return dist::DeviceMesh(mesh_);
}

void detail::place_module(ModuleBase& module, const dist::MeshState* mesh, PortLayouts inputs, PortLayouts outputs) {
  module.mesh_ = mesh;
  module.inputs_ = std::move(inputs);
  module.outputs_ = std::move(outputs);
}

void detail::set_training(ModuleBase& module, bool on) { module.training_ = on; }
void detail::set_recomputes(ModuleBase& module, bool on) { module.recomputes_ = on; }

void materialize(ModuleBase& model) {
  auto make = [](detail::ParameterState& state) {
    if (state.deferred) detail::replace_tensor(state, detail::make_elements(state, nullptr));
  };
  for (const Parameter& p : model.parameters()) make(*p.state());
  for (const Buffer& b : model.buffers()) make(*b.state());
}

}  // namespace cleave::nn
