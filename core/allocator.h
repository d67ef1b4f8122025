// The caching allocator: one per rank, with public statistics.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <cleave/core/device.h>

namespace cleave {

/// Bytes of this rank's tensors on one device.
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

namespace detail {

class Allocator;

/// A block of device memory and the allocator it returns to, on whichever thread it is freed.
struct Allocation {
  void* data = nullptr;
  size_t bytes = 0;  // as rounded
  Allocator* owner = nullptr;
};
/// In debug and test runs, fill fresh floating buffers with NaN (bytes 0xff) so that reads of unwritten elements show.
void set_poison(bool on);
bool poison();

Allocation allocate(int64_t bytes, Device device);
void release(const Allocation& block);

}  // namespace detail
}  // namespace cleave
