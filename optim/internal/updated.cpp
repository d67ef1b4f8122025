#include <cleave/autograd/sync.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/together.h>
#include <cleave/optim/internal/owned.h>
#include <cleave/optim/internal/updated.h>

namespace cleave::optim::detail {

void Updated::add(const Tensor& stored, const Tensor& block) { items_.push_back({stored, block}); }

void Updated::bring_back() {
  dist::GatherBuckets gathers(autograd::bucket_bytes(), "optimizer");
  for (const Item& item : items_) {
    if (dist::GatherBuckets::fits(item.block, item.stored)) {
      gathers.add(item.block, item.stored);
      continue;
    }
    Tensor moved = in_layout(item.block, item.stored.impl()->layout);
    cleave::detail::copy_view(item.stored.device(), cleave::detail::elements(moved),
                              cleave::detail::elements(item.stored));
  }
  gathers.finish();
  for (const Item& item : items_) item.stored.bump_version();
  items_.clear();
}

}  // namespace cleave::optim::detail
