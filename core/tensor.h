// Tensor: a handle with value semantics to elements, their type, and their place on the tape.
#pragma once
#include <functional>
#include <utility>

#include <cleave/core/device.h>
#include <cleave/core/type.h>
#include <cleave/core/view.h>

namespace cleave {

class Storage;
class Tensor;

namespace detail {
struct TensorImpl;
void retain(TensorImpl*);
void release(TensorImpl*);
}  // namespace detail

/// How `Tensor::backward` ends.
struct BackwardOptions {
  /// Reduce the gradients of the leaves that were reached into their gradient layouts (communicates). With false
  /// their terms are kept for a later `backward` or `sync_gradients`: the way to accumulate micro-batches.
  bool sync = true;
  /// Keep saved tensors so that the same graph can be run backward again.
  bool retain_graph = false;
};

/// A tensor of up to 8 dims. Copying copies the handle; `clone` copies elements. A default-constructed handle is
/// undefined: only `defined()` may be asked of it. `shape()` is always the global shape; a distributed tensor also
/// has a layout, and this rank holds the block that the layout gives it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_) detail::retain(impl_);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_) detail::release(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  /// The global size of `dim`, which may be negative. Throws ShapeError out of range.
  int64_t size(int64_t dim) const;
  int dim() const;
  DType dtype() const;
  Device device() const;
  TensorType type() const;

  bool is_distributed() const;
  /// Throws LayoutError on a plain tensor. Include <cleave/dist/layout.h> to use the result.
  dist::Layout layout() const;
  /// This rank's block as a plain tensor that shares its storage and is detached from the tape.
  Tensor local() const;

  /// The memory that views share; compare the pointers to see whether two tensors alias.
  const Storage* storage() const;
  /// Elements between neighbours of this rank's block.
  const Strides& strides() const;
  bool is_contiguous() const;
  /// Pointer to the first element of this rank's block; throws DTypeError unless T is its dtype. Host tensors only.
  /// Writers must call `bump_version()`.
  template <class T>
  T* data() const {
    return static_cast<T*>(data_checked(dtype_of<T>()));
  }
  /// Counts in-place writes to the storage; the tape compares it to detect writes to saved tensors.
  uint32_t version() const;
  void bump_version() const;

  bool requires_grad() const;
  /// Makes a leaf of the tape. Throws GradError for a tensor that an op on the tape produced, or of an integer dtype.
  const Tensor& set_requires_grad(bool on = true) const;
  /// Whether an operation on the tape produced it (false for leaves).
  bool has_producer() const;
  /// The leaf's gradient, in its gradient layout; undefined if `backward` did not reach it or it was zeroed. Throws
  /// GradError on a leaf with unsynced terms. Does not communicate.
  Tensor grad() const;
  void zero_grad() const;
  /// Adds the gradient of this scalar to `grad()` of every leaf it was computed from. Communicates. Throws GradError
  /// for a tensor that is not a scalar or not on the tape.
  void backward(const BackwardOptions& options = {}) const;
  /// As above for a tensor of any shape, given its cotangent (a tensor of this shape and dtype).
  void backward(const Tensor& cotangent, const BackwardOptions& options = {}) const;
  /// The same elements, off the tape.
  Tensor detach() const;
  /// Runs after this leaf's gradient was synced; a defined result replaces it. Hooks run in the order added.
  void add_hook(std::function<Tensor(const Tensor&)> hook) const;

  /// Adopts one reference.
  explicit Tensor(detail::TensorImpl* adopted) : impl_(adopted) {}
  detail::TensorImpl* impl() const { return impl_; }

 private:
  void* data_checked(DType expected) const;
  detail::TensorImpl* impl_ = nullptr;
};

int64_t numel(const Tensor& x);

}  // namespace cleave
