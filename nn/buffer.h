// Buffer: a named tensor of a module that is not learned: statistics, masks, tables.
#pragma once
#include <cleave/nn/parameter.h>

namespace cleave::nn {

/// A handle, saved with the model and placed by its plan (replicated unless named). Never requires grad.
class Buffer {
 public:
  /// Of the model's dtype, or the one given.
  Buffer(ModuleBase* parent, std::string name, const Shape& shape, const Init& init = init::zeros());
  Buffer(ModuleBase* parent, std::string name, const Shape& shape, DType dtype, const Init& init = init::zeros());
  /// A plain value that all ranks hold; keeps its dtype.
  Buffer(ModuleBase* parent, std::string name, const Tensor& value);

  /// In its use layout; communicates if that is not how it is stored.
  operator Tensor() const { return detail::read(*state_); }
  /// As stored; write to it with the in-place functions.
  const Tensor& tensor() const { return state_->tensor; }
  const std::string& name() const { return state_->path; }
  const Shape& shape() const { return state_->shape; }
  DType dtype() const { return state_->dtype; }
  /// As Parameter::assign.
  void assign(const Tensor& source) const;
  const std::shared_ptr<detail::ParameterState>& state() const { return state_; }

 private:
  friend class ModuleBase;
  explicit Buffer(std::shared_ptr<detail::ParameterState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::ParameterState> state_;
};

}  // namespace cleave::nn
