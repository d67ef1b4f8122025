#include <cleave/autograd/grad_mode.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/internal/replaced.h>

namespace cleave {
namespace {

using autograd::Cotangent;

class ReplacedNode : public autograd::Node {
 public:
  ReplacedNode(const char* name, ReplacedBackward backward, std::vector<dist::AxisMask> partial)
      : Node(name, autograd::Producer::replaced), backward_(std::move(backward)), partial_(std::move(partial)) {}

  std::vector<Cotangent> backward(std::span<const Cotangent> cotangents) override {
    if (!backward_)
      throw GradError(
          op_message(name(), "backward ran through this graph already; pass {.retain_graph = true} to the first call"));
    std::vector<Tensor> grads;
    for (const Cotangent& c : cotangents) grads.push_back(c.value);
    std::vector<Tensor> result = backward_(grads);
    std::vector<Cotangent> out;
    for (size_t i = 0; i < result.size(); ++i) out.push_back({std::move(result[i]), partial_[i]});
    return out;
  }
  void release_saved() override { backward_ = nullptr; }

 private:
  ReplacedBackward backward_;
  std::vector<dist::AxisMask> partial_;
};

}  // namespace

void record_replaced(const char* name, Inputs in, std::span<Tensor> out, ReplacedBackward backward,
                     std::vector<dist::AxisMask> input_partial) {
  bool parameter = true;
  for (const Tensor* x : in) parameter = parameter && (!x->defined() || x->impl()->parameter);
  for (Tensor& y : out) y.impl()->parameter = parameter;
  if (!autograd::should_record(in)) return;
  autograd::NodeRef node(new ReplacedNode(name, std::move(backward), std::move(input_partial)));
  for (const Tensor* x : in) node->add_input(*x);
  for (Tensor& y : out) node->add_output(y);
}

Tensor from_block(const Tensor& block, const Shape& global, const dist::LayoutData* layout) {
  if (!layout->mesh->member())
    return detail::make_tensor(global, Shape(global.rank(), 0), block.dtype(), Device::Meta, layout, true);
  return detail::make_view(block, block.impl()->view, global, layout);
}

}  // namespace cleave
