// The contract between ops and backends: a kernel is a function of views and attributes, one per device.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include <cleave/core/device.h>
#include <cleave/core/view.h>

namespace cleave {

/// The attributes of a call: a reference to a trivially copyable struct that the op knows the type of.
class Attributes {
 public:
  Attributes() = default;
  template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_same_v<T, Attributes>) Attributes(const T& value)
      : data_(&value), size_(sizeof(T)) {}
  Attributes(const void* data, size_t size) : data_(data), size_(size) {}

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(data_);
  }
  const void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

/// One kernel launch. Views are local blocks; an optional input that is absent is a null pointer. Outputs are
/// allocated by the caller and uninitialised; kernels write every element and read no output.
struct KernelCall {
  std::span<const View* const> in;
  std::span<const View* const> out;
  Attributes attributes{};
  void* stream = nullptr;  // the backend's queue; null on the CPU
};
using KernelFn = void (*)(const KernelCall&);

/// The bytes that a call takes from the allocator while it runs.
using ScratchFn = int64_t (*)(const KernelCall&);

/// The implementations of one kernel by device; null where a device lacks it. Meta needs none.
struct Kernel {
  KernelFn cpu = nullptr;
  KernelFn cuda = nullptr;
  ScratchFn cpu_scratch = nullptr;  ///< null: none; views may have no data
};

/// Runs the kernel of `device`; for Meta only counts its scratch memory, as on the CPU. Throws ValueError naming `op`
/// if the device lacks it.
void launch(const Kernel& kernel, Device device, const char* op, const KernelCall& call);

}  // namespace cleave
