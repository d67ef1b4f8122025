// The sync of leaves: their terms become gradients.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>

namespace cleave {
namespace autograd {
namespace {

thread_local int64_t bucket_limit = kBucketBytes;
thread_local bool any_early = false;

Tensor own_copy(const Tensor& x, DType dtype) {
  Tensor own =
      detail::make_tensor(x.shape(), x.impl()->view.shape, dtype, x.impl()->device, x.impl()->layout, x.impl()->absent);
  detail::copy_view(own.impl()->device, detail::elements(x), own.impl()->view);
  return own;
}

// The synced gradient in its layout and dtype, added to one that is there already.
void settle(detail::AutogradMeta& m, const Tensor& gradient, DType dtype) {
  if (m.grad.defined()) {
    detail::accumulate_view(gradient.impl()->device, detail::elements(gradient), detail::elements(m.grad));
    m.grad.bump_version();
  } else if (gradient.dtype() != dtype || !gradient.is_contiguous() ||
             gradient.impl()->view.numel() * size_of(gradient.dtype()) != gradient.storage()->bytes()) {
    // A gradient that outlives its bucket would keep all of it alive.
    m.grad = own_copy(gradient, dtype);
  } else {
    m.grad = gradient;
  }
}

// A gradient is written in place, by clipping say; what a hook redistributed is remembered and must not be.
void run_hooks(detail::AutogradMeta& m) {
  for (const auto& hook : m.hooks) {
    Tensor replacement = hook(m.grad);
    if (!replacement.defined()) continue;
    m.grad = replacement.storage()->redistributed() ? own_copy(replacement, replacement.dtype()) : replacement;
  }
}

}  // namespace

int64_t bucket_bytes() { return bucket_limit; }
int64_t set_bucket_bytes(int64_t bytes) {
  if (bytes < 0)
    throw ValueError("[set_bucket_bytes] a bucket of " + std::to_string(bytes) +
                     " bytes; pass 0 to let each gradient go alone");
  return std::exchange(bucket_limit, bytes);
}

bool reduces_early(const Tensor& leaf) { return leaf.impl()->autograd && leaf.impl()->autograd->reduce_early; }
void set_reduces_early(const Tensor& leaf, bool on) {
  meta(leaf).reduce_early = on;
  any_early = any_early || on;
}
bool any_reduces_early() { return any_early; }

bool has_pending(const Tensor& leaf) { return leaf.impl()->autograd && !leaf.impl()->autograd->slots.empty(); }

void LeafSync::add(const Tensor& leaf) {
  if (!has_pending(leaf)) return;
  NoGrad off;
  detail::AutogradMeta& m = *leaf.impl()->autograd;
  merge_.add(leaf, m.slots, m.gradient_layout);
  leaves_.push_back(leaf);
}

void LeafSync::finish() {
  NoGrad off;
  std::vector<Tensor> gradients = merge_.finish();
  for (size_t i = 0; i < leaves_.size(); ++i)  // a bucket goes with the last gradient in it
    settle(*leaves_[i].impl()->autograd, std::exchange(gradients[i], {}), kept_dtype(leaves_[i]));
  for (const Tensor& leaf : leaves_) run_hooks(*leaf.impl()->autograd);
  leaves_.clear();
}

}  // namespace autograd

void sync_gradients(std::span<const Tensor> leaves) {
  autograd::LeafSync sync;
  for (const Tensor& leaf : leaves) sync.add(leaf);
  sync.finish();
}

}  // namespace cleave
