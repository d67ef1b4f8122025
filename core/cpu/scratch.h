// Working memory of a kernel, from this rank's caching allocator.
#pragma once
#include <cleave/core/allocator.h>

namespace cleave::cpu {

/// Uninitialised bytes, aligned to 64, given back at the end of the scope. Make it outside parallel regions.
class Scratch {
 public:
  explicit Scratch(int64_t bytes, Device device = Device::Cpu) {
    detail::MemoryUseScope use(MemoryUse::workspace);
    block_ = detail::allocate(bytes, device);
  }
  ~Scratch() { detail::release(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return block_.data; }
  template <class T>
  T* as() const {
    return static_cast<T*>(block_.data);
  }

 private:
  detail::Allocation block_;
};

}  // namespace cleave::cpu
