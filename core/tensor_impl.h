// The body behind a Tensor handle, and the making of new ones. For ops and backends; users need <cleave/core/tensor.h>.
#pragma once
#include <atomic>
#include <memory>

#include <cleave/core/allocator.h>
#include <cleave/core/tensor.h>

namespace cleave {

/// Work under way that writes the elements of a storage or still reads them: a collective, a copy.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  /// Returns when the elements are there and free to be written, also if it throws; at once from the second time on.
  /// Throws, every time, what the operation would have thrown had it been waited for from the start.
  virtual void wait() = 0;
};

/// Elements that views share. Lives as long as any tensor on it; its header lies in the allocation of the first.
class Storage {
 public:
  void* data() const { return block_.data; }  ///< null on Meta
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump() { version_.fetch_add(1, std::memory_order_relaxed); }
  /// Made by a redistribution: writes would not reach the tensor it came from.
  bool redistributed() const { return redistributed_; }
  void mark_redistributed() { redistributed_ = true; }
  /// From now on whoever wants the elements waits for `operation` first.
  void set_pending(std::shared_ptr<PendingOperation> operation);
  bool pending() const { return rare_ && rare_->pending; }
  /// Waits for what is under way, if anything is. Throws as PendingOperation::wait.
  void settle() {
    if (rare_) [[unlikely]]
      settle_pending();
  }

 private:
  friend struct detail::TensorImpl;
  friend void detail::release(detail::TensorImpl*);
  friend struct StorageAccess;
  void settle_pending();
  std::atomic<uint32_t> references_{1};
  std::atomic<uint32_t> version_{0};
  Device device_ = Device::Cpu;
  bool redistributed_ = false;
  int64_t bytes_ = 0;
  detail::Allocation block_;
  // What few storages ever have.
  struct Rare {
    std::shared_ptr<PendingOperation> pending;
    std::shared_ptr<void> memory;  // from elsewhere, in place of block_
  };
  Rare* rare_ = nullptr;  // owned
};

namespace detail {

/// The tape's part of a tensor; its type lives in autograd/.
struct AutogradMeta;
void destroy(AutogradMeta*) noexcept;
/// Forgets a redistribution that was memoised by or for `impl`; lives in autograd/.
void forget_memo(TensorImpl* impl) noexcept;

struct TensorImpl {
  std::atomic<uint32_t> references{1};
  Device device = Device::Cpu;
  bool parameter = false;  ///< a parameter, or computed from parameters alone
  bool memoised = false;   ///< source or result of a memoised redistribution
  bool absent = false;     ///< this rank is outside the mesh: a type without data, kept as an empty Meta block
  View view;               ///< this rank's block
  Shape global;            ///< equal to view.shape for a plain tensor
  const dist::LayoutData* layout = nullptr;
  Storage* storage = nullptr;
  AutogradMeta* autograd = nullptr;
};

/// This rank's block of x for whoever is going to read or write its elements: here, and nowhere else, is waited for
/// what is under way on its storage. For sizes and strides alone take `impl()->view`.
inline const View& elements(const Tensor& x) {
  x.impl()->storage->settle();
  return x.impl()->view;
}

/// A type without anything behind it, and counted nowhere: on Device::Meta, until elements are made.
Tensor make_placeholder(const Shape& shape, DType dtype);
/// A fresh plain tensor, dense and uninitialised.
Tensor make_tensor(const Shape& shape, DType dtype, Device device);
/// The same in memory of the host that someone else made, which it keeps alive: at least as large, aligned to 64 bytes.
Tensor make_tensor(const Shape& shape, DType dtype, std::shared_ptr<void> memory);
/// A fresh distributed tensor whose block on this rank has the shape `local`. `absent`: no block here.
Tensor make_tensor(const Shape& global, const Shape& local, DType dtype, Device device, const dist::LayoutData* layout,
                   bool absent = false);
/// Whether nobody else can see the elements of x: one handle, no views.
bool is_unique(const Tensor& x);
/// Another tensor on the storage of `base`, off the tape; `view.data` may point anywhere in that storage.
Tensor make_view(const Tensor& base, const View& view, const Shape& global, const dist::LayoutData* layout);

}  // namespace detail
}  // namespace cleave
