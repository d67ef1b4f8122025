#include <cleave/autograd/reduce_buckets.h>
#include <cleave/autograd/slots.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/observer.h>
#include <cleave/dist/redistribution.h>
#include <cleave/dist/together.h>

#include <algorithm>

namespace cleave::autograd {
namespace {

// Room for a bucket; where ranks share memory of their own making, in that, so that the reduction copies nothing.
Tensor room(int64_t elements, DType dtype, Device device, const LayoutData* layout, AxisMask axes) {
  detail::MemoryUseScope use(MemoryUse::communication);
  if (device == Device::Cpu && layout->mesh->member()) {
    dist::Communicator& ranks = layout->mesh->communicator(axes);
    if (ranks.gains_by_shared_buffers())
      return detail::make_tensor({elements}, dtype, ranks.shared_buffer(elements * size_of(dtype)));
  }
  return detail::make_tensor({elements}, dtype, device);
}

// A dense piece of a flat buffer.
View piece(const Tensor& buffer, int64_t at, const Shape& shape) {
  View part{buffer.impl()->view.data, buffer.dtype(), shape, contiguous_strides(shape)};
  if (part.data) part.data = static_cast<char*>(part.data) + at * size_of(part.dtype);
  return part;
}

// Hands out views of a buffer in which the results lie one after the other.
void hand_out(const Tensor& buffer, std::vector<Reduction>& items) {
  int64_t at = 0;
  for (Reduction& item : items) {
    View part = piece(buffer, at, dist::local_box(item.shape, *item.to).shape);
    at += part.numel();
    item.done(detail::make_view(buffer, part, part.shape, nullptr));
  }
}

TensorType type_of(const Reduction& r, DType wire) { return {wire, r.shape, r.from}; }

// A bucket is told of by its first.
class BucketSpan : public dist::RedistributionSpan {
 public:
  BucketSpan(const TensorType& type, const std::vector<Reduction>& items)
      : RedistributionSpan("gradients", type, items.front().to, items.front().leaf,
                           static_cast<int64_t>(items.size())) {}
};

}  // namespace

void ReduceBuckets::add(Reduction&& r) {
  if (r.from == r.to || !r.from->mesh->member()) return r.done(std::move(r.block));
  std::optional<AxisMask> scatter = dist::further_axes(r.from, r.to);
  AxisMask summed = r.from->partial & ~r.to->partial;
  if (!scatter || (*scatter & ~summed) || (r.to->partial & ~r.from->partial)) return alone(std::move(r));
  if (!summed) return r.done(std::move(r.block));
  Bucket kind{r.from, *scatter, summed & ~*scatter, r.wire};
  // Of a block, from global sizes: every rank cuts buckets alike.
  int64_t bytes = numel(r.shape) * size_of(r.wire) / r.from->mesh->size_of(r.from->split());
  auto bucket = std::find_if(open_.begin(), open_.end(), [&](const Bucket& b) {
    return b.layout->mesh == r.from->mesh && b.scatter == kind.scatter && b.reduce == kind.reduce && b.wire == r.wire &&
           b.items.front().block.device() == r.block.device();
  });
  if (bucket == open_.end()) {
    bucket = open_.insert(open_.end(), std::move(kind));
  } else if (bucket->bytes + bytes > bucket_bytes()) {
    go(std::exchange(*bucket, std::move(kind)));
  }
  bucket->items.push_back(std::move(r));
  bucket->bytes += bytes;
}

void ReduceBuckets::finish() {
  for (Bucket& bucket : std::exchange(open_, {})) go(std::move(bucket));
  complete_scattered();
}

void ReduceBuckets::go(Bucket&& bucket) {
  complete_scattered();
  TensorType type = type_of(bucket.items.front(), bucket.wire);
  BucketSpan span(type, bucket.items);
  if (bucket.scatter)
    reduce_scatter(std::move(bucket));
  else
    all_reduce(std::move(bucket));
}

void ReduceBuckets::all_reduce(Bucket&& bucket) {
  int64_t total = 0, at = 0;
  for (const Reduction& item : bucket.items) total += numel(item.block);
  Tensor packed = room(total, bucket.wire, bucket.items.front().block.device(), bucket.layout, bucket.reduce);
  for (Reduction& item : bucket.items) {
    View part = piece(packed, at, item.block.shape());
    detail::copy_view(packed.device(), detail::elements(item.block), part);
    at += part.numel();
    item.block = {};
  }
  start_reduce_over(packed, bucket.layout, bucket.reduce, label_);
  hand_out(packed, bucket.items);
}

void ReduceBuckets::reduce_scatter(Bucket&& bucket) {
  std::vector<dist::ScatterItem> items;
  for (Reduction& item : bucket.items) items.push_back({std::exchange(item.block, {}), item.shape, item.from, item.to});
  Tensor sums = dist::reduce_scatter_together(items, bucket.scatter, bucket.wire, label_);
  scattered_.push_back({sums, bucket.layout, bucket.reduce, std::move(bucket.items)});
  if (!bucket.reduce || !overlapping()) complete_scattered();
}

// Starting the second reduction waits for the first: so not before something else is to go.
void ReduceBuckets::complete_scattered() {
  for (Scattered& s : std::exchange(scattered_, {})) {
    if (s.reduce) {
      TensorType type = type_of(s.items.front(), s.sums.dtype());
      BucketSpan span(type, s.items);
      start_reduce_over(s.sums, s.layout, s.reduce, label_);
    }
    hand_out(s.sums, s.items);
  }
}

void ReduceBuckets::alone(Reduction&& r) {
  TensorType type = type_of(r, r.wire);
  dist::RedistributionSpan span("gradients", type, r.to, r.leaf);
  Tensor block = r.block.dtype() == r.wire ? r.block : detail::dense_copy(r.block, r.wire);
  Tensor placed = detail::make_view(block, block.impl()->view, r.shape, r.from);
  r.done(dist::start_redistribution(placed, r.to, label_).local());
}

}  // namespace cleave::autograd
