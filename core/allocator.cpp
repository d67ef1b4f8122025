#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/core/text.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
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

std::atomic<bool> poison_fresh{false};

thread_local constinit AllocationObserver* observer = nullptr;
thread_local constinit MemoryUse current_use = MemoryUse::tensor;
thread_local constinit uint64_t blocks_numbered = 0;

}  // namespace

MemoryUseScope::MemoryUseScope(MemoryUse use) : before_(std::exchange(current_use, use)) {}
MemoryUseScope::~MemoryUseScope() { current_use = before_; }

// Blocks are kept by exact rounded size: a training step asks for the same sizes again. Small sizes use an array of
// lists, larger ones a map from which a block up to an eighth larger may also be taken. What is counted as handed out
// is what was asked for, whichever block it lies in: it does not depend on what came before. The rest counts as cached.
// Of Device::Meta the same is counted, and no memory taken.
class Allocator {
 public:
  explicit Allocator(Device device) : device_(device) {}

  Allocation take(size_t wanted) {
    drain();
    size_t bytes = rounded(wanted);
    if (limit_ && stats_.active + static_cast<int64_t>(bytes) > limit_) out_of_memory(bytes);
    void* data = nullptr;
    if (!reuse(bytes, data)) data = from_system(bytes);
    if (data && poison_fresh.load(std::memory_order_relaxed)) std::memset(data, 0xff, bytes);
    return counted({data, bytes, this});
  }

  Allocation lend(void* data, size_t wanted) {
    drain();
    return counted({.data = data, .bytes = rounded(wanted), .owner = this, .lent = true});
  }

  void give(const Allocation& block, bool own_thread) {
    if (own_thread) {
      keep(block);
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
    stats_.cached = unused_;
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
  static size_t rounded(size_t wanted) {
    return round_up(std::max<size_t>(wanted, 1), wanted >= kPage ? kPage : kAlign);
  }

  Allocation counted(Allocation block) {
    stats_.active += static_cast<int64_t>(block.bytes);
    stats_.peak = std::max(stats_.peak, stats_.active);
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    if (observer) [[unlikely]] {
      block.number = ++blocks_numbered;
      observer->allocated(block.number, static_cast<int64_t>(block.bytes), device_, current_use);
    }
    return block;
  }

  void keep(const Allocation& block) {
    stats_.active -= static_cast<int64_t>(block.bytes);
    if (observer && block.number) [[unlikely]]
      observer->released(block.number);
    if (block.lent) return;
    stats_.cached += static_cast<int64_t>(block.bytes);
    if (block.bytes < kPage)
      small_[block.bytes / kAlign].push_back(block.data);
    else
      large_[whole_size(block)].push_back(block.data);
  }

  // Of the block that this lies in, which is no longer handed out.
  size_t whole_size(const Allocation& block) {
    auto at = larger_.find(block.data);
    if (at == larger_.end()) return block.bytes;
    size_t whole = at->second;
    larger_.erase(at);
    unused_ -= static_cast<int64_t>(whole - block.bytes);
    return whole;
  }

  // Whether a block was kept; it may be larger than asked for.
  bool reuse(size_t bytes, void*& data) {
    std::vector<void*>* list = nullptr;
    size_t whole = bytes;
    if (bytes < kPage) {
      list = &small_[bytes / kAlign];
      if (list->empty()) return false;
    } else {
      auto it = large_.lower_bound(bytes);
      while (it != large_.end() && it->second.empty()) it = large_.erase(it);
      size_t most =
          device_ == Device::Meta ? bytes : bytes + bytes / 8;  // without an address there is no telling blocks
      if (it == large_.end() || it->first > most) return false;
      whole = it->first;
      list = &it->second;
    }
    data = list->back();
    list->pop_back();
    if (whole > bytes) {
      larger_.emplace(data, whole);
      unused_ += static_cast<int64_t>(whole - bytes);
    }
    stats_.cached -= static_cast<int64_t>(bytes);
    return true;
  }

  void* from_system(size_t bytes) {
    if (device_ == Device::Meta) return ++stats_.system_allocations, nullptr;
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
    std::string limit = limit_ ? ", limit " + bytes_text(limit_) : "";
    throw OutOfMemoryError("[allocate] out of memory asking for " + bytes_text(static_cast<int64_t>(bytes)) + " (" +
                           to_string(stats_) + limit + "); split the model further or shrink the batch");
  }

  void drain() {
    if (!has_foreign_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(foreign_mutex_);
    for (const Allocation& b : foreign_) keep(b);
    foreign_.clear();
    has_foreign_.store(false, std::memory_order_relaxed);
  }

  const Device device_;
  std::array<std::vector<void*>, kPage / kAlign> small_;
  std::map<size_t, std::vector<void*>> large_;
  std::unordered_map<void*, size_t> larger_;  // blocks handed out that are larger than asked for
  int64_t unused_ = 0;                        // of these
  MemoryStats stats_;
  int64_t limit_ = 0;
  std::mutex foreign_mutex_;
  std::vector<Allocation> foreign_;
  std::atomic<bool> has_foreign_{false};
  std::atomic<int64_t> outstanding_{1};  // blocks handed out, and the owning thread
};

namespace {

// The rank is its thread: the allocators die with the last of the thread and the blocks they handed out.
struct Owner {
  Allocator* cpu = new Allocator(Device::Cpu);
  Allocator* meta = new Allocator(Device::Meta);
  ~Owner() {
    gone() = true;
    cpu->unref();
    meta->unref();
  }
  static bool& gone() {
    thread_local bool value = false;
    return value;
  }
};

Owner& own() {
  thread_local Owner owner;
  return owner;
}

Allocator* own(Device device) { return device == Device::Meta ? own().meta : own().cpu; }

}  // namespace

void set_poison(bool on) { poison_fresh.store(on, std::memory_order_relaxed); }
bool poison() { return poison_fresh.load(std::memory_order_relaxed); }

Allocation allocate(int64_t bytes, Device device) { return own(device)->take(static_cast<size_t>(bytes)); }
Allocation count_lent(void* data, int64_t bytes) { return own().cpu->lend(data, static_cast<size_t>(bytes)); }

void release(const Allocation& block) {
  bool here = !Owner::gone() && (own().cpu == block.owner || own().meta == block.owner);
  block.owner->give(block, here);
}

}  // namespace detail

AllocationObserver* AllocationObserver::current() { return detail::observer; }
AllocationObserver* AllocationObserver::set(AllocationObserver* observer) {
  return std::exchange(detail::observer, observer);
}

MemoryStats memory_stats(Device device) {
  return device == Device::Cuda ? MemoryStats{} : detail::own(device)->stats();
}
void reset_peak_memory(Device device) {
  if (device != Device::Cuda) detail::own(device)->reset_peak();
}
void empty_cache(Device device) {
  if (device != Device::Cuda) detail::own(device)->trim();
}
void set_memory_limit(int64_t bytes, Device device) {
  if (device != Device::Cuda) detail::own(device)->set_limit(bytes);
}

std::string to_string(const MemoryStats& s) {
  return "active " + bytes_text(s.active) + ", peak " + bytes_text(s.peak) + ", cached " + bytes_text(s.cached);
}

}  // namespace cleave
