// The tape's record of one dispatched op.
#pragma once
#include <memory>

#include <cleave/autograd/recipe.h>
#include <cleave/ops/op.h>

namespace cleave {

class OpNode : public autograd::Node {
 public:
  /// `in` as the op ran with them (redistributed), `attributes` as localized.
  OpNode(const OpDef& op, Attributes attributes, Inputs in, std::span<Tensor> out);
  std::vector<autograd::Cotangent> backward(std::span<const autograd::Cotangent> cotangents) override;
  void each_recipe(const std::function<void(const autograd::Recipe&)>& f) const override;
  void release_saved() override;

 private:
  Attributes attributes() const { return {attributes_.data(), attributes_size_}; }
  void save_input(size_t i, const Tensor& x);
  Tensor saved_input(size_t i) const;
  void promote(std::vector<autograd::Cotangent>& cotangents) const;

  const OpDef& op_;
  alignas(16) std::array<std::byte, 256> attributes_;
  size_t attributes_size_;
  std::vector<BackwardInput> types_;          // of the inputs
  std::vector<autograd::SavedTensor> saved_;  // inputs, then outputs; undefined where not saved
  std::vector<std::pair<size_t, std::unique_ptr<const autograd::Recipe>>> recipes_;  // of saved inputs, in their place
  bool absent_ = false, released_ = false;
};

}  // namespace cleave
