#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/redistribute/bucket.h>
#include <cleave/optim/internal/owned.h>
#include <cleave/optim/internal/updated.h>

#include <algorithm>

namespace cleave::optim::detail {

namespace {

struct Bucket {
  std::vector<Tensor> blocks, whole;
  dist::AxisMask axes = 0;
  int64_t bytes = 0;
  bool takes(const Tensor& block, const Tensor& stored, dist::AxisMask over, int64_t more) const {
    return axes == over && blocks[0].dtype() == block.dtype() && bytes + more <= autograd::bucket_bytes() &&
           whole[0].impl()->layout->mesh == stored.impl()->layout->mesh;
  }
};

}  // namespace

void Updated::add(const Tensor& stored, const Tensor& block) { items_.push_back({stored, block}); }

void Updated::bring_back() {
  std::vector<Bucket> buckets;
  for (const Item& item : items_) {
    dist::AxisMask axes = dist::appended_axes(item.stored.impl()->layout, item.block.impl()->layout);
    if (!axes) {
      Tensor moved = in_layout(item.block, item.stored.impl()->layout);
      cleave::detail::copy_view(item.stored.device(), cleave::detail::elements(moved),
                                cleave::detail::elements(item.stored));
      continue;
    }
    int64_t bytes = numel(item.stored.shape()) * size_of(item.stored.dtype());
    auto bucket = std::find_if(buckets.begin(), buckets.end(),
                               [&](const Bucket& b) { return b.takes(item.block, item.stored, axes, bytes); });
    if (bucket == buckets.end()) bucket = buckets.insert(buckets.end(), Bucket{{}, {}, axes, 0});
    bucket->blocks.push_back(item.block);
    bucket->whole.push_back(item.stored);
    bucket->bytes += bytes;
  }
  for (const Bucket& b : buckets) dist::all_gather_bucket(b.blocks, b.whole, b.axes, "optimizer");
  for (const Item& item : items_) item.stored.bump_version();
  items_.clear();
}

}  // namespace cleave::optim::detail
