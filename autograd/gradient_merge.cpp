// The merging of the slots of many tensors.
#include <cleave/autograd/node.h>
#include <cleave/autograd/reduce_buckets.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>

namespace cleave::autograd {

bool overlapping() { return dist::World::current() && dist::World::current()->overlaps(); }

struct GradientMerge::State {
  ReduceBuckets buckets{"sync_gradients"};
  std::vector<Tensor> results;
};

GradientMerge::GradientMerge() = default;
GradientMerge::~GradientMerge() = default;

void GradientMerge::add(const Tensor& tensor, Slots& slots, const LayoutData* target) {
  if (!state_) state_ = std::make_unique<State>();
  State& s = *state_;
  const LayoutData* layout = tensor.impl()->layout;
  Cotangent sum = slots.sum(layout);
  slots.clear();
  size_t at = s.results.size();
  s.results.emplace_back();
  if (!layout) {
    s.results[at] = std::move(sum.value);
    return;
  }
  const LayoutData* to = target ? target : gradient_layout(layout, 0);
  auto done = [&s, at, tensor, to](const Tensor& block) {
    Tensor gradient = detail::make_view(block, block.impl()->view, tensor.shape(), to);
    gradient.impl()->absent = tensor.impl()->absent;
    s.results[at] = std::move(gradient);
  };
  s.buckets.add({std::move(sum.value), tensor.shape(), gradient_layout(layout, sum.partial), to, reduced_dtype(tensor),
                 tensor.storage(), std::move(done)});
}

std::vector<Tensor> GradientMerge::finish() {
  if (!state_) return {};
  state_->buckets.finish();
  std::vector<Tensor> out = std::move(state_->results);
  state_.reset();
  return out;
}

}  // namespace cleave::autograd
