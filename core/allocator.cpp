#include <cleave/core/allocator.h>
#include <cleave/core/error.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace cleave {
namespace detail {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kPage = 4096;

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Large blocks ask for huge pages: fewer faults, and products of strided matrices miss the TLB less.
void* allocate_pages(size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(kAlign, bytes);
  void* data = nullptr;  // aligned_alloc would want a multiple of the alignment
  if (posix_memalign(&data, kHugePage, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (data) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}

std::string mebibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::atomic<bool> poison_fresh{false};

}  // namespace

// Blocks are kept by exact rounded size: a training step asks for the same sizes again. Small sizes use an array of
// lists, larger ones a map from which a block up to an eighth larger may also be taken.
class Allocator {
 public:
  Allocation take(size_t wanted) {
    drain();
    size_t bytes = round_up(std::max<size_t>(wanted, 1), wanted >= kPage ? kPage : kAlign);
    if (limit_ && stats_.active + static_cast<int64_t>(bytes) > limit_) out_of_memory(bytes);
    void* data = reuse(bytes);
    if (!data) data = from_system(bytes);
    stats_.active += static_cast<int64_t>(bytes);
    stats_.peak = std::max(stats_.peak, stats_.active);
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    if (poison_fresh.load(std::memory_order_relaxed)) std::memset(data, 0xff, bytes);
    return {data, bytes, this};
  }

  void give(const Allocation& block, bool own_thread) {
    if (own_thread) {
      keep(block.data, block.bytes);
    } else {
      std::lock_guard lock(foreign_mutex_);
      foreign_.push_back(block);
      has_foreign_.store(true, std::memory_order_release);
    }
    unref();
  }

  void trim() {
    drain();
    for (auto& list : small_) {
      for (void* p : list) std::free(p);
      list.clear();
    }
    for (auto& [bytes, list] : large_)
      for (void* p : list) std::free(p);
    large_.clear();
    stats_.cached = 0;
  }

  void unref() {
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    trim();
    delete this;
  }

  MemoryStats stats() {
    drain();
    return stats_;
  }
  void reset_peak() {
    drain();
    stats_.peak = stats_.active;
  }
  void set_limit(int64_t bytes) { limit_ = bytes; }

 private:
  void keep(void* data, size_t bytes) {
    stats_.active -= static_cast<int64_t>(bytes);
    stats_.cached += static_cast<int64_t>(bytes);
    if (bytes < kPage)
      small_[bytes / kAlign].push_back(data);
    else
      large_[bytes].push_back(data);
  }

  void* reuse(size_t& bytes) {
    std::vector<void*>* list = nullptr;
    if (bytes < kPage) {
      list = &small_[bytes / kAlign];
      if (list->empty()) return nullptr;
    } else {
      auto it = large_.lower_bound(bytes);
      while (it != large_.end() && it->second.empty()) it = large_.erase(it);
      if (it == large_.end() || it->first > bytes + bytes / 8) return nullptr;
      bytes = it->first;
      list = &it->second;
    }
    void* data = list->back();
    list->pop_back();
    stats_.cached -= static_cast<int64_t>(bytes);
    return data;
  }

  void* from_system(size_t bytes) {
    void* data = allocate_pages(bytes);
    if (!data) {
      trim();
      data = allocate_pages(bytes);
    }
    if (!data) out_of_memory(bytes);
    ++stats_.system_allocations;
    return data;
  }

  [[noreturn]] void out_of_memory(size_t bytes) {
    std::string limit = limit_ ? ", limit " + mebibytes(limit_) : "";
    throw OutOfMemoryError("[allocate] out of memory asking for " + mebibytes(static_cast<int64_t>(bytes)) + " (" +
                           to_string(stats_) + limit + "); split the model further or shrink the batch");
  }

  void drain() {
    if (!has_foreign_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(foreign_mutex_);
    for (const Allocation& b : foreign_) keep(b.data, b.bytes);
    foreign_.clear();
    has_foreign_.store(false, std::memory_order_relaxed);
  }

  std::array<std::vector<void*>, kPage / kAlign> small_;
  std::map<size_t, std::vector<void*>> large_;
  MemoryStats stats_;
  int64_t limit_ = 0;
  std::mutex foreign_mutex_;
  std::vector<Allocation> foreign_;
  std::atomic<bool> has_foreign_{false};
  std::atomic<int64_t> outstanding_{1};  // blocks handed out, and the owning thread
};

namespace {

// The rank is its thread: the allocator dies with the last of the thread and the blocks it handed out.
struct Owner {
  Allocator* allocator = new Allocator;
  ~Owner() {
    gone() = true;
    allocator->unref();
  }
  static bool& gone() {
    thread_local bool value = false;
    return value;
  }
};

Allocator* own() {
  thread_local Owner owner;
  return owner.allocator;
}

}  // namespace

void set_poison(bool on) { poison_fresh.store(on, std::memory_order_relaxed); }
bool poison() { return poison_fresh.load(std::memory_order_relaxed); }

Allocation allocate(int64_t bytes, Device) { return own()->take(static_cast<size_t>(bytes)); }

void release(const Allocation& block) { block.owner->give(block, !Owner::gone() && own() == block.owner); }

}  // namespace detail

MemoryStats memory_stats(Device device) { return device == Device::Cpu ? detail::own()->stats() : MemoryStats{}; }
void reset_peak_memory(Device device) {
  if (device == Device::Cpu) detail::own()->reset_peak();
}
void empty_cache(Device device) {
  if (device == Device::Cpu) detail::own()->trim();
}
void set_memory_limit(int64_t bytes, Device device) {
  if (device == Device::Cpu) detail::own()->set_limit(bytes);
}

std::string to_string(const MemoryStats& s) {
  return "active " + detail::mebibytes(s.active) + ", peak " + detail::mebibytes(s.peak) + ", cached " +
         detail::mebibytes(s.cached);
}

}  // namespace cleave
