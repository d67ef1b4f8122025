#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>

#include <algorithm>

namespace cleave {
namespace autograd {
namespace {

/// A gradient on its way: `reduce` are the axes still to be summed over.
struct Item {
  size_t index;
  Cotangent gradient;
  const LayoutData* layout;
  AxisMask reduce;
  int64_t bytes;  // of a block, from global sizes: every rank cuts buckets alike
};

bool same_collective(const Item& a, const Item& b) {
  return a.layout->mesh == b.layout->mesh && a.reduce == b.reduce &&
         a.gradient.value.dtype() == b.gradient.value.dtype();
}

// One all-reduce for a bucket of gradients: packed, reduced, and handed out as views of the bucket.
void reduce_bucket(std::span<Item* const> items) {
  int64_t total = 0;
  for (Item* item : items) total += numel(item->gradient.value);
  const Tensor first = items.front()->gradient.value;
  Tensor bucket = detail::make_tensor(Shape{total}, first.dtype(), first.device());
  int64_t at = 0;
  for (Item* item : items) {
    Tensor& value = item->gradient.value;
    View part = bucket.impl()->view;
    part.shape = value.shape();
    part.strides = contiguous_strides(value.shape());
    if (part.data) part.data = static_cast<char*>(part.data) + at * size_of(part.dtype);
    detail::copy_view(value.device(), value.impl()->view, part);
    at += numel(value);
    value = detail::make_view(bucket, part, part.shape, nullptr);
    item->gradient.partial &= ~item->reduce;
  }
  reduce_over(bucket, items.front()->layout, items.front()->reduce, "sync_gradients");
}

void reduce_in_buckets(std::vector<Item>& items) {
  std::vector<bool> done(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (done[i] || !items[i].reduce) continue;
    std::vector<Item*> bucket;
    int64_t bytes = 0;
    for (size_t j = i; j < items.size(); ++j) {
      if (done[j] || !items[j].reduce || !same_collective(items[i], items[j])) continue;
      if (!bucket.empty() && bytes + items[j].bytes > kBucketBytes) break;
      bucket.push_back(&items[j]);
      bytes += items[j].bytes;
      done[j] = true;
    }
    reduce_bucket(bucket);
  }
}

Tensor as_gradient(const Item& item, const Tensor& of, const LayoutData* target) {
  const Tensor& value = item.gradient.value;
  if (!item.layout) return value;
  const LayoutData* held = gradient_layout(item.layout, item.gradient.partial);
  Tensor gradient = detail::make_view(value, value.impl()->view, of.shape(), held);
  gradient.impl()->absent = of.impl()->absent;
  return target && target != held ? dist::redistribute_data(gradient, target, "sync_gradients") : gradient;
}

}  // namespace

bool has_pending(const Tensor& leaf) { return leaf.impl()->autograd && !leaf.impl()->autograd->slots.empty(); }

std::vector<Tensor> merge_all(std::span<const Tensor> tensors, std::span<Slots* const> slots,
                              std::span<const LayoutData* const> targets) {
  std::vector<Item> items;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (slots[i]->empty()) continue;
    const LayoutData* layout = tensors[i].impl()->layout;
    Item item{i, slots[i]->sum(layout), layout, 0, 0};
    slots[i]->clear();
    // A gradient that is wanted split goes there in one step of its own; the others share all-reduces.
    if (!targets[i] || targets[i] == gradient_layout(layout, 0)) item.reduce = item.gradient.partial;
    if (layout)
      item.bytes =
          numel(tensors[i].shape()) * size_of(item.gradient.value.dtype()) / layout->mesh->size_of(layout->split());
    items.push_back(std::move(item));
  }
  reduce_in_buckets(items);
  std::vector<Tensor> out(tensors.size());
  for (const Item& item : items) out[item.index] = as_gradient(item, tensors[item.index], targets[item.index]);
  return out;
}

}  // namespace autograd

namespace {

// The synced gradient in its layout, added to one that is there already.
void settle(detail::AutogradMeta& m, const Tensor& gradient) {
  if (m.grad.defined()) {
    detail::accumulate_view(gradient.impl()->device, gradient.impl()->view, m.grad.impl()->view);
    m.grad.bump_version();
  } else if (!gradient.is_contiguous() ||
             gradient.impl()->view.numel() * size_of(gradient.dtype()) != gradient.storage()->bytes()) {
    // A gradient that outlives its bucket would keep all of it alive.
    Tensor own = detail::make_tensor(gradient.shape(), gradient.impl()->view.shape, gradient.dtype(),
                                     gradient.impl()->device, gradient.impl()->layout, gradient.impl()->absent);
    detail::copy_view(own.impl()->device, gradient.impl()->view, own.impl()->view);
    m.grad = own;
  } else {
    m.grad = gradient;
  }
}

void run_hooks(detail::AutogradMeta& m) {
  for (const auto& hook : m.hooks)
    if (Tensor replacement = hook(m.grad); replacement.defined()) m.grad = replacement;
}

}  // namespace

void sync_gradients(std::span<const Tensor> leaves) {
  NoGrad off;
  std::vector<Tensor> pending;
  std::vector<autograd::Slots*> slots;
  std::vector<const dist::LayoutData*> targets;
  for (const Tensor& leaf : leaves) {
    if (!autograd::has_pending(leaf)) continue;
    detail::AutogradMeta& m = *leaf.impl()->autograd;
    if (std::find(slots.begin(), slots.end(), &m.slots) != slots.end()) continue;
    pending.push_back(leaf);
    slots.push_back(&m.slots);
    targets.push_back(m.gradient_layout);
  }
  std::vector<Tensor> gradients = autograd::merge_all(pending, slots, targets);
  for (size_t i = 0; i < pending.size(); ++i) settle(*pending[i].impl()->autograd, gradients[i]);
  for (const Tensor& leaf : pending) run_hooks(*leaf.impl()->autograd);
}

}  // namespace cleave
