// The merging of many gradients, in buckets: one collective for each.
#include <cleave/autograd/node.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>

#include <algorithm>

namespace cleave::autograd {
namespace {

/// A gradient on its way: `reduce` are the axes still to be summed over.
struct Item {
  Tensor tensor;
  Cotangent gradient;
  const LayoutData *layout, *target;
  AxisMask reduce = 0;
  int64_t bytes = 0;  // of a block, from global sizes: every rank cuts buckets alike
  Tensor result = {};
};

bool same_collective(const Item& a, const Item& b) {
  return a.layout->mesh == b.layout->mesh && a.reduce == b.reduce &&
         a.gradient.value.dtype() == b.gradient.value.dtype();
}

Tensor as_gradient(const Item& item) {
  const Tensor& value = item.gradient.value;
  if (!item.layout) return value;
  const LayoutData* held = gradient_layout(item.layout, item.gradient.partial);
  Tensor gradient = detail::make_view(value, value.impl()->view, item.tensor.shape(), held);
  gradient.impl()->absent = item.tensor.impl()->absent;
  return item.target && item.target != held ? dist::start_redistribution(gradient, item.target, "sync_gradients")
                                            : gradient;
}

}  // namespace

bool overlapping() { return dist::World::current() && dist::World::current()->overlaps(); }

struct GradientMerge::State {
  struct Bucket {
    std::vector<size_t> items;
    int64_t bytes = 0;
  };
  std::vector<Item> items;
  std::vector<Bucket> open;  // one for each kind of collective

  void join(size_t at) {
    const Item& item = items[at];
    auto fits = [&](const Bucket& b) { return same_collective(items[b.items.front()], item); };
    auto bucket = std::find_if(open.begin(), open.end(), fits);
    if (bucket == open.end()) {
      bucket = open.emplace(open.end());
    } else if (bucket->bytes + item.bytes > kBucketBytes) {
      reduce(*bucket);
      *bucket = {};
    }
    bucket->items.push_back(at);
    bucket->bytes += item.bytes;
  }

  // Room for a bucket; where ranks share memory of their own making, in that, so that the reduction copies nothing.
  static Tensor room(int64_t elements, const Tensor& like, const LayoutData* layout, AxisMask axes) {
    detail::MemoryUseScope use(MemoryUse::communication);
    if (like.device() == Device::Cpu && layout->mesh->member()) {
      dist::Communicator& ranks = layout->mesh->communicator(axes);
      if (ranks.gains_by_shared_buffers())
        return detail::make_tensor({elements}, like.dtype(), ranks.shared_buffer(elements * size_of(like.dtype())));
    }
    return detail::make_tensor({elements}, like.dtype(), like.device());
  }

  // One all-reduce for a bucket of gradients: packed, reduced, and handed out as views of the bucket.
  void reduce(const Bucket& bucket) {
    int64_t total = 0;
    for (size_t i : bucket.items) total += numel(items[i].gradient.value);
    const Item& first = items[bucket.items.front()];
    const Tensor& like = first.gradient.value;
    const LayoutData* layout = first.layout;
    AxisMask axes = first.reduce;
    Tensor packed = room(total, like, layout, axes);
    int64_t at = 0;
    for (size_t i : bucket.items) {
      Tensor& value = items[i].gradient.value;
      View part = packed.impl()->view;
      part.shape = value.shape();
      part.strides = contiguous_strides(value.shape());
      if (part.data) part.data = static_cast<char*>(part.data) + at * size_of(part.dtype);
      detail::copy_view(value.device(), detail::elements(value), part);
      at += numel(value);
      value = detail::make_view(packed, part, part.shape, nullptr);
      items[i].gradient.partial &= ~axes;
    }
    start_reduce_over(packed, layout, axes, "sync_gradients");
    for (size_t i : bucket.items) finish(items[i]);
  }

  void finish(Item& item) {
    item.result = as_gradient(item);
    item.gradient.value = {};
  }
};

GradientMerge::GradientMerge() = default;
GradientMerge::~GradientMerge() = default;

void GradientMerge::add(const Tensor& tensor, Slots& slots, const LayoutData* target) {
  if (!state_) state_ = std::make_unique<State>();
  const LayoutData* layout = tensor.impl()->layout;
  Item item{tensor, slots.sum(layout), layout, target};
  slots.clear();
  // A gradient that is wanted split goes there in one step of its own; the others share all-reduces.
  if (!target || target == gradient_layout(layout, 0)) item.reduce = item.gradient.partial;
  if (layout)
    item.bytes = numel(tensor.shape()) * size_of(item.gradient.value.dtype()) / layout->mesh->size_of(layout->split());
  bool shares = item.reduce != 0;
  if (!shares) state_->finish(item);
  state_->items.push_back(std::move(item));
  if (shares) state_->join(state_->items.size() - 1);
}

std::vector<Tensor> GradientMerge::finish() {
  if (!state_) return {};
  for (const State::Bucket& bucket : state_->open) state_->reduce(bucket);
  std::vector<Tensor> out;
  for (Item& item : state_->items) out.push_back(std::move(item.result));
  state_.reset();
  return out;
}

}  // namespace cleave::autograd
