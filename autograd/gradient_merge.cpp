// The merging of many gradients, in buckets: one collective for each.
#include <cleave/autograd/node.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/bucket.h>
#include <cleave/dist/redistribution.h>

#include <algorithm>

namespace cleave::autograd {
namespace {

/// A gradient on its way: `reduce` are the axes still to be summed over; over those of `scatter` each rank gets its
/// block.
struct Item {
  Tensor tensor;
  Cotangent gradient;
  const LayoutData *layout, *target;
  AxisMask reduce = 0, scatter = 0;
  int64_t bytes = 0;  // of a block, from global sizes: every rank cuts buckets alike
  Tensor result = {};
};

bool same_collective(const Item& a, const Item& b) {
  return a.layout->mesh == b.layout->mesh && a.reduce == b.reduce && a.scatter == b.scatter &&
         a.gradient.value.dtype() == b.gradient.value.dtype();
}

// The gradient as it is held now.
Tensor held(const Item& item) {
  const Tensor& value = item.gradient.value;
  const LayoutData* layout = gradient_layout(item.layout, item.gradient.partial);
  Tensor gradient = detail::make_view(value, value.impl()->view, item.tensor.shape(), layout);
  gradient.impl()->absent = item.tensor.impl()->absent;
  return gradient;
}

Tensor as_gradient(const Item& item) {
  if (!item.layout) return item.gradient.value;
  Tensor gradient = held(item);
  return item.target && item.target != gradient.impl()->layout
             ? dist::start_redistribution(gradient, item.target, "sync_gradients")
             : gradient;
}

// A gradient that is wanted in a layout of another kind goes there in steps of its own.
void choose_collectives(Item& item) {
  AxisMask partial = item.gradient.partial;
  if (!partial) return;
  const LayoutData* whole = gradient_layout(item.layout, 0);
  if (!item.target || item.target == whole) {
    item.reduce = partial;
    return;
  }
  AxisMask axes = dist::appended_axes(whole, item.target);
  if (!axes || (axes & ~partial)) return;
  item.scatter = axes;
  item.reduce = partial & ~axes;
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
    } else if (bucket->bytes + item.bytes > bucket_bytes()) {
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

  void reduce(const Bucket& bucket) {
    if (items[bucket.items.front()].scatter)
      scatter(bucket);
    else
      reduce_whole(bucket);
  }

  // A rank outside the mesh has nothing to send.
  void scatter_absent(const Bucket& bucket) {
    for (size_t i : bucket.items) {
      items[i].gradient.partial = 0;
      finish(items[i]);
    }
  }

  // One reduce-scatter for a bucket, then the all-reduce of the blocks over what other axes there are.
  void scatter(const Bucket& bucket) {
    std::vector<Tensor> gradients;
    std::vector<const LayoutData*> targets;
    const Item& first = items[bucket.items.front()];
    if (!first.layout->mesh->member()) return scatter_absent(bucket);
    for (size_t i : bucket.items) {
      gradients.push_back(held(items[i]));
      targets.push_back(gradient_layout(items[i].target, items[i].reduce));
      items[i].gradient.value = {};
    }
    dist::Scattered out = dist::reduce_scatter_bucket(gradients, targets, first.scatter, "sync_gradients");
    gradients.clear();
    start_reduce_over(out.memory, first.layout, first.reduce, "sync_gradients");
    for (size_t i = 0; i < bucket.items.size(); ++i) {
      Item& item = items[bucket.items[i]];
      const Tensor& block = out.blocks[i];
      item.result = detail::make_view(block, block.impl()->view, block.shape(), item.target);
      item.result.impl()->absent = item.tensor.impl()->absent;
    }
  }

  // One all-reduce for a bucket of gradients: packed, reduced, and handed out as views of the bucket.
  void reduce_whole(const Bucket& bucket) {
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
  choose_collectives(item);
  if (layout)
    item.bytes = numel(tensor.shape()) * size_of(item.gradient.value.dtype()) / layout->mesh->size_of(layout->split());
  bool shares = (item.reduce | item.scatter) != 0;
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
