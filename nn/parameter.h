// Parameter: a named tensor that a module learns, with a storage, a use, a gradient and a state layout.
#pragma once
#include <memory>
#include <string>

#include <cleave/core/random.h>
#include <cleave/core/tensor.h>
#include <cleave/nn/init.h>
#include <cleave/nn/module_base.h>

namespace cleave::nn {

namespace detail {
struct GatherOrder;

/// What the handles of one parameter or buffer share.
struct ParameterState : std::enable_shared_from_this<ParameterState> {
  std::string path;  ///< its first dotted name
  Shape shape;
  DType dtype = DType::f32;
  Device device = Device::Cpu;
  bool trained = true;  ///< a parameter, not a buffer
  bool deferred = false;
  Init init{};
  cleave::detail::RandomKey key{};
  Tensor tensor;                                   ///< as stored; without elements while deferred
  const dist::LayoutData* use = nullptr;           ///< null: as stored
  const dist::LayoutData* state_layout = nullptr;  ///< of optimizer state, if the plan gives one
  mutable std::shared_ptr<GatherOrder> gathers{};  ///< of the last pass that this one was gathered first in
};
/// Makes the elements of a deferred one, under a layout or plain.
Tensor make_elements(const ParameterState& state, const dist::LayoutData* layout);
/// Puts `tensor` in the place of the stored one; keeps requires_grad, hooks and the precision of gradients.
void replace_tensor(ParameterState& state, const Tensor& tensor);
/// The stored tensor in the use layout. Communicates if the two differ.
Tensor read(const ParameterState& state);
}  // namespace detail

/// A handle: copies are the same parameter. Read as a Tensor (implicitly) it is in its use layout; the gather that this
/// may take is memoised, and its backward is what the layouts ask for (ZeRO-3: a reduce-scatter). A parameter requires
/// grad and is a leaf; `tensor()` is what optimizers and checkpoints see.
class Parameter {
 public:
  /// A new parameter of `parent`, or one of nn::build's options. Draws a call number if `init` is random.
  Parameter(ModuleBase* parent, std::string name, const Shape& shape, const Init& init = init::zeros());
  /// A tie: another name of `other`.
  Parameter(ModuleBase* parent, std::string name, const Parameter& other);
  /// A handle to a leaf of the caller's, for optimizers; it requires grad from then on.
  explicit Parameter(const Tensor& leaf, std::string name = "");

  operator Tensor() const { return detail::read(*state_); }
  /// As stored. Without elements (Device::Meta) while deferred.
  const Tensor& tensor() const { return state_->tensor; }
  /// Its dotted name from the root; of a tie, the first one.
  const std::string& name() const { return state_->path; }
  const Shape& shape() const { return state_->shape; }
  DType dtype() const { return state_->dtype; }
  bool is_deferred() const { return state_->deferred; }
  const Init& init() const { return state_->init; }

  bool is_distributed() const { return tensor().is_distributed(); }
  /// Throw LayoutError on a plain parameter.
  dist::Layout layout() const;
  dist::Layout use_layout() const;
  /// Of `grad()` after a sync: the plan's, or that of optimizer state if the plan splits that further.
  dist::Layout gradient_layout() const;
  /// Of optimizer state: the plan's; else the gradient's, if that is split further, or as stored.
  dist::Layout state_layout() const;

  bool requires_grad() const { return tensor().requires_grad(); }
  /// Off: frozen; optimizers pass it by.
  void set_requires_grad(bool on);
  Tensor grad() const { return tensor().grad(); }
  void zero_grad() const { tensor().zero_grad(); }
  /// Copies the values of `source` (this shape; plain, or of any layout if distributed), converted to its dtype.
  /// Communicates if layouts differ. A plain source on a distributed parameter is a value that all ranks hold.
  void assign(const Tensor& source) const;
  /// Starts anew as if it had been made with `init` (drawing a call number if that is random), in the layout it has; a
  /// deferred one stays deferred. Throws ShapeError if `init` does not suit the shape.
  void reset(const Init& init) const;

  const std::shared_ptr<detail::ParameterState>& state() const { return state_; }
  friend bool operator==(const Parameter& a, const Parameter& b) { return a.state_ == b.state_; }

 private:
  friend class ModuleBase;
  explicit Parameter(std::shared_ptr<detail::ParameterState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::ParameterState> state_;
};

/// `sync_gradients` of the parameters' stored tensors. Communicates.
void sync_gradients(const std::vector<Parameter>& parameters);

}  // namespace cleave::nn
