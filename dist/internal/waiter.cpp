#include <cleave/dist/internal/waiter.h>

namespace cleave::dist::detail {

std::vector<int> Waiter::missing() const {
  std::vector<int> ranks;
  for (int i = 0; i < group_.size(); ++i)
    if (everyone_ ? !group_.reached(i, mark_, number_, std::memory_order_acquire) : i == waited_for_)
      ranks.push_back(group_.ranks[static_cast<size_t>(i)]);
  return ranks;
}

}  // namespace cleave::dist::detail
