// Sleepers in shared memory: threads of one process, or processes that map the same pages.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace cleave::dist::detail {

/// Those who change what others may wait for call `wake` after a sequentially consistent store.
class Alarm {
 public:
  void wake() {
    if (has_sleepers()) wake_all();
  }
  bool has_sleepers() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  /// Returns when `ready`, or after some time, or for no reason.
  template <class Ready>
  void sleep(Ready&& ready, std::chrono::microseconds most) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    uint32_t before = changes_.load(std::memory_order_seq_cst);
    if (!ready()) wait_while(before, most);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void wake_all();
  void wait_while(uint32_t before, std::chrono::microseconds most);

  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> changes_{0};
  static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
};

}  // namespace cleave::dist::detail
