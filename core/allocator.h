// The caching allocator: one per rank, with public statistics.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <cleave/core/device.h>

namespace cleave {

/// Bytes of this rank's tensors on one device. Meta tensors have no memory, but are counted as if they had: what a
/// program takes on Device::Meta is what it would take on a real device.
struct MemoryStats {
  int64_t active = 0;              ///< handed out now
  int64_t peak = 0;                ///< the largest `active` since the start or `reset_peak_memory()`
  int64_t cached = 0;              ///< returned by tensors and kept for reuse
  int64_t system_allocations = 0;  ///< requests that went to the system since the start
};

/// This rank's statistics. Sizes are as rounded up for alignment (64 bytes).
MemoryStats memory_stats(Device device = Device::Cpu);
/// Sets `peak` to `active` on this rank.
void reset_peak_memory(Device device = Device::Cpu);
/// Gives this rank's cached bytes back to the system.
void empty_cache(Device device = Device::Cpu);
/// Limits this rank's active bytes; 0 lifts the limit. Above it allocation throws OutOfMemoryError.
void set_memory_limit(int64_t bytes, Device device = Device::Cpu);
/// "active 12.0 MiB, peak 30.1 MiB, cached 4.0 MiB".
std::string to_string(const MemoryStats& stats);

/// What a block of memory is for.
enum class MemoryUse : uint8_t {
  tensor,         ///< elements of a tensor
  communication,  ///< what is packed to be sent, or received to be unpacked
  workspace       ///< of a kernel, while it runs
};

/// Is told of every block that a rank takes and gives back while it is set there. Costs a branch while none is.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  /// `number` names the block on this rank.
  virtual void allocated(uint64_t number, int64_t bytes, Device device, MemoryUse use) = 0;
  /// Blocks taken before the observer was set are told of with numbers that it does not know, or not at all.
  virtual void released(uint64_t number) = 0;

  /// The one of this rank, or null.
  static AllocationObserver* current();
  /// Makes it that of this rank (null: none) and returns the one before.
  static AllocationObserver* set(AllocationObserver* observer);
};

namespace detail {

/// Blocks that this rank takes while it lives are for `use`.
class MemoryUseScope {
 public:
  explicit MemoryUseScope(MemoryUse use);
  ~MemoryUseScope();
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  MemoryUse before_;
};

class Allocator;

/// A block of device memory and the allocator it returns to, on whichever thread it is freed.
struct Allocation {
  void* data = nullptr;
  size_t bytes = 0;  // as rounded
  Allocator* owner = nullptr;
  uint64_t number = 0;  // for AllocationObserver; 0: none was set
  bool lent = false;    // memory from elsewhere, only counted here
};
/// In debug and test runs, fill fresh floating buffers with NaN (bytes 0xff) so that reads of unwritten elements show.
void set_poison(bool on);
bool poison();

/// Meta: counted, and without data.
Allocation allocate(int64_t bytes, Device device);
/// Counts memory of the host that someone else made among this rank's active bytes, until it is released.
Allocation count_lent(void* data, int64_t bytes);
void release(const Allocation& block);

}  // namespace detail
}  // namespace cleave
