// Parameters and buffers: making them, reading them, writing them.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/observer.h>
#include <cleave/dist/ambient.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/build.h>
#include <cleave/nn/gather.h>
#include <cleave/nn/internal/parameter_names.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/inplace.h>

namespace cleave::nn {

namespace detail {

namespace {

void set_requires_grad(const Tensor& x, bool on) {
  x.set_requires_grad(on);
  x.impl()->parameter = true;  // a frozen one too: the dispatcher prefers to move what is no parameter
}

}  // namespace

Tensor make_elements(const ParameterState& state, const dist::LayoutData* layout) {
  NoGrad off;
  dist::UseMesh plain(nullptr);
  TensorOptions options{.dtype = state.dtype, .device = state.device, .layout = dist::Layout(layout)};
  Init init = state.init.resolve(state.shape);
  if (!init.random()) return full(state.shape, init.a, options);
  auto kind =
      init.kind == Init::Kind::normal ? cleave::detail::RandomKind::normal : cleave::detail::RandomKind::uniform;
  return cleave::detail::random_tensor(kind, state.shape, options, state.key, init.a, init.b);
}

void replace_tensor(ParameterState& state, const Tensor& tensor) {
  if (state.trained) {
    auto& old = autograd::meta(state.tensor);
    set_requires_grad(tensor, old.requires_grad);
    autograd::meta(tensor).hooks = std::move(old.hooks);
    autograd::meta(tensor).precision = old.precision;
  }
  state.tensor = tensor;
  state.deferred = false;
}

Tensor read(const ParameterState& state) {
  if (state.deferred && state.device != Device::Meta)
    throw ValueError((state.trained ? "parameter " : "buffer ") + state.path +
                     " is deferred and has no elements yet; call shard(model, mesh, plan) or materialize(model) first");
  const Tensor& x = state.tensor;
  if (cleave::detail::observer) [[unlikely]]
    name_storage(x.storage(), state.path);
  return state.use && state.use != x.impl()->layout ? gather(state) : x;
}

namespace {

std::shared_ptr<ParameterState> make_state(const ModuleBase* parent, const std::string& name, const Shape& shape,
                                           std::optional<DType> dtype, const Init& init, bool trained) {
  const BuildOptions& options = build_options();
  auto state = std::make_shared<ParameterState>();
  state->path = parent->path().empty() ? name : parent->path() + "." + name;
  state->shape = shape;
  state->dtype = dtype ? *dtype : options.dtype.value_or(DType::f32);
  state->device = options.device;
  state->trained = trained;
  state->deferred = options.deferred;
  state->init = init;
  if (init.random()) state->key = cleave::detail::next_random_key();
  if (trained && !is_floating(state->dtype))
    throw DTypeError("parameter " + state->path + " cannot be " + std::string(to_string(state->dtype)) +
                     "; parameters are floating, use a Buffer for other values");
  init.resolve(shape);  // a shape that does not suit it is an error here, not when the elements are made
  state->tensor =
      state->deferred ? cleave::detail::make_placeholder(shape, state->dtype) : make_elements(*state, nullptr);
  if (trained) set_requires_grad(state->tensor, true);
  return state;
}

void write(const ParameterState& state, const Tensor& source) {
  NoGrad off;
  const Tensor& x = state.tensor;
  if (state.deferred)
    throw ValueError("[assign] " + state.path +
                     " is deferred; call shard(model, mesh, plan) or materialize(model) first");
  if (!(source.shape() == state.shape))
    throw ShapeError("[assign] " + to_string(source.type()) + " does not fit " + state.path + ", which is " +
                     to_string(x.type()));
  if (!x.is_distributed() && source.is_distributed())
    throw LayoutError("[assign] " + describe(source.type()) + " is distributed and " + state.path +
                      " is plain; pass full_tensor(source)");
  bool place = x.is_distributed() && !source.is_distributed();
  copy_(x, place ? dist::distribute(source.detach(), x.layout()) : source.detach());
}

}  // namespace
}  // namespace detail

namespace {
ModuleBase& required(ModuleBase* parent, const std::string& name) {
  if (!parent) throw ValueError("\"" + name + "\" needs a module that it belongs to; pass `this`");
  return *parent;
}
}  // namespace

Parameter::Parameter(ModuleBase* parent, std::string name, const Shape& shape, const Init& init) {
  required(parent, name).require_free(name);
  state_ = detail::make_state(parent, name, shape, std::nullopt, init, true);
  parent->add({std::move(name), state_}, false);
}

Parameter::Parameter(ModuleBase* parent, std::string name, const Parameter& other) : state_(other.state_) {
  required(parent, name).require_free(name);
  parent->add({std::move(name), state_, true}, false);
}

Parameter::Parameter(const Tensor& leaf, std::string name) : state_(std::make_shared<detail::ParameterState>()) {
  detail::set_requires_grad(leaf, true);
  state_->path = std::move(name);
  state_->shape = leaf.shape();
  state_->dtype = leaf.dtype();
  state_->device = leaf.device();
  state_->tensor = leaf;
}

dist::Layout Parameter::layout() const { return tensor().layout(); }
dist::Layout Parameter::use_layout() const {
  dist::Layout stored = tensor().layout();
  return state_->use ? dist::Layout(state_->use) : stored;
}
dist::Layout Parameter::gradient_layout() const {
  dist::Layout stored = tensor().layout();
  const auto* own = autograd::meta(tensor()).gradient_layout;
  return own ? dist::Layout(own) : stored;
}

dist::Layout Parameter::state_layout() const {
  dist::Layout stored = tensor().layout();
  return state_->state_layout ? dist::Layout(state_->state_layout) : stored;
}

void Parameter::set_requires_grad(bool on) { detail::set_requires_grad(tensor(), on); }
void Parameter::assign(const Tensor& source) const { detail::write(*state_, source); }

void Parameter::reset(const Init& init) const {
  init.resolve(shape());
  state_->init = init;
  if (init.random()) state_->key = cleave::detail::next_random_key();
  if (is_deferred()) return;
  NoGrad off;
  copy_(tensor(), detail::make_elements(*state_, tensor().impl()->layout));
}

void sync_gradients(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> leaves;
  for (const Parameter& p : parameters) leaves.push_back(p.tensor());
  cleave::sync_gradients(leaves);
}

Buffer::Buffer(ModuleBase* parent, std::string name, const Shape& shape, const Init& init) {
  required(parent, name).require_free(name);
  state_ = detail::make_state(parent, name, shape, std::nullopt, init, false);
  parent->add({std::move(name), state_}, true);
}

Buffer::Buffer(ModuleBase* parent, std::string name, const Shape& shape, DType dtype, const Init& init) {
  required(parent, name).require_free(name);
  state_ = detail::make_state(parent, name, shape, dtype, init, false);
  parent->add({std::move(name), state_}, true);
}

Buffer::Buffer(ModuleBase* parent, std::string name, const Tensor& value)
    : state_(std::make_shared<detail::ParameterState>()) {
  required(parent, name).require_free(name);
  if (value.is_distributed())
    throw LayoutError("buffer " + name + " starts as a plain tensor, not as " + describe(value.type()) +
                      "; the plan of shard() gives it a layout");
  state_->path = parent->path().empty() ? name : parent->path() + "." + name;
  state_->shape = value.shape();
  state_->dtype = value.dtype();
  state_->device = value.device();
  state_->trained = false;
  state_->tensor = value.detach();
  parent->add({std::move(name), state_}, true);
}

void Buffer::assign(const Tensor& source) const { detail::write(*state_, source); }

}  // namespace cleave::nn
