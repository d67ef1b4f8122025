#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>

#include <new>

namespace cleave {

void Storage::set_pending(std::shared_ptr<PendingOperation> operation) {
  settle();
  if (!rare_) rare_ = new Rare;
  rare_->pending = std::move(operation);
}

void Storage::settle_pending() {
  if (auto operation = rare_->pending) operation->wait();
  rare_->pending = {};
  if (!rare_->memory) delete std::exchange(rare_, nullptr);
}

struct StorageAccess {
  static void init(Storage& s, int64_t bytes, Device device) {
    s.device_ = device;
    s.bytes_ = bytes;
    s.block_ = detail::allocate(bytes, device);
  }
  static void init_empty(Storage& s, int64_t bytes) {
    s.device_ = Device::Meta;
    s.bytes_ = bytes;
  }
  static void retain(Storage& s) { s.references_.fetch_add(1, std::memory_order_relaxed); }
  static bool unique(const Storage& s) { return s.references_.load(std::memory_order_acquire) == 1; }
  static bool last(Storage& s) { return s.references_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  static void adopt(Storage& s, int64_t bytes, std::shared_ptr<void> memory) {
    s.bytes_ = bytes;
    s.block_ = detail::count_lent(memory.get(), bytes);
    s.rare_ = new Storage::Rare{.pending = {}, .memory = std::move(memory)};
  }
  /// The operation uses the block; nobody will ask for its outcome.
  static void finish(Storage& s) {
    std::unique_ptr<Storage::Rare> rare(std::exchange(s.rare_, nullptr));
    try {
      if (rare->pending) rare->pending->wait();
    } catch (...) {}
  }
  static void free(Storage& s) {
    if (s.rare_) [[unlikely]]
      finish(s);
    if (s.block_.owner) detail::release(s.block_);
  }
};

namespace detail {
namespace {

// A tensor and the storage made with it share one allocation, which lives as long as the storage: the tensor holds
// one of its references, so it is always destroyed first.
struct Fresh {
  TensorImpl impl;
  Storage storage;
};

}  // namespace

void retain(TensorImpl* impl) { impl->references.fetch_add(1, std::memory_order_relaxed); }

void release(TensorImpl* impl) {
  if (impl->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (impl->memoised) forget_memo(impl);
  if (impl->autograd) destroy(std::exchange(impl->autograd, nullptr));
  Storage* storage = impl->storage;
  auto* fresh = reinterpret_cast<Fresh*>(impl);
  bool embedded = storage == &fresh->storage;
  if (!embedded) delete impl;
  if (!StorageAccess::last(*storage)) return;
  StorageAccess::free(*storage);
  // The allocation's address is recovered from the storage: the tensor of the same block may be long gone.
  auto* block = reinterpret_cast<Fresh*>(reinterpret_cast<char*>(storage) - offsetof(Fresh, storage));
  delete block;
}

Tensor make_tensor(const Shape& shape, DType dtype, Device device) {
  return make_tensor(shape, shape, dtype, device, nullptr);
}

namespace {

Tensor plain_on(std::unique_ptr<Fresh> fresh, const Shape& shape, DType dtype) {
  TensorImpl& impl = fresh->impl;
  impl.device = fresh->storage.device();
  impl.view = View{fresh->storage.data(), dtype, shape, contiguous_strides(shape)};
  impl.global = shape;
  impl.storage = &fresh->storage;
  return Tensor(&fresh.release()->impl);
}

}  // namespace

Tensor make_placeholder(const Shape& shape, DType dtype) {
  auto fresh = std::make_unique<Fresh>();
  StorageAccess::init_empty(fresh->storage, numel(shape) * size_of(dtype));
  return plain_on(std::move(fresh), shape, dtype);
}

Tensor make_tensor(const Shape& shape, DType dtype, std::shared_ptr<void> memory) {
  auto fresh = std::make_unique<Fresh>();
  StorageAccess::adopt(fresh->storage, numel(shape) * size_of(dtype), std::move(memory));
  return plain_on(std::move(fresh), shape, dtype);
}

Tensor make_tensor(const Shape& global, const Shape& local, DType dtype, Device device, const dist::LayoutData* layout,
                   bool absent) {
  auto* fresh = new Fresh;
  try {
    if (absent) {
      device = Device::Meta;
      StorageAccess::init_empty(fresh->storage, 0);
    } else {
      StorageAccess::init(fresh->storage, numel(local) * size_of(dtype), device);
    }
  } catch (...) {
    delete fresh;
    throw;
  }
  TensorImpl& impl = fresh->impl;
  impl.device = device;
  impl.absent = absent;
  impl.view = View{fresh->storage.data(), dtype, local, contiguous_strides(local)};
  impl.global = global;
  impl.layout = layout;
  impl.storage = &fresh->storage;
  return Tensor(&impl);
}

bool is_unique(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  return impl.references.load(std::memory_order_acquire) == 1 && StorageAccess::unique(*impl.storage);
}

Tensor make_view(const Tensor& base, const View& view, const Shape& global, const dist::LayoutData* layout) {
  auto* impl = new TensorImpl;
  const TensorImpl& from = *base.impl();
  impl->device = from.device;
  impl->absent = from.absent;
  impl->view = view;
  impl->global = global;
  impl->layout = layout;
  impl->storage = from.storage;
  StorageAccess::retain(*from.storage);
  return Tensor(impl);
}

}  // namespace detail

namespace {
const detail::TensorImpl& body(const detail::TensorImpl* impl) {
  if (!impl) throw ValueError("this tensor is undefined; assign a tensor to it first");
  return *impl;
}
}  // namespace

const Shape& Tensor::shape() const { return body(impl_).global; }
int Tensor::dim() const { return body(impl_).global.rank(); }
DType Tensor::dtype() const { return body(impl_).view.dtype; }
Device Tensor::device() const { return body(impl_).device; }
bool Tensor::is_distributed() const { return body(impl_).layout != nullptr; }
const Storage* Tensor::storage() const { return body(impl_).storage; }
const Strides& Tensor::strides() const { return body(impl_).view.strides; }
bool Tensor::is_contiguous() const { return body(impl_).view.contiguous(); }
uint32_t Tensor::version() const { return body(impl_).storage->version(); }
void Tensor::bump_version() const { body(impl_).storage->bump(); }

TensorType Tensor::type() const {
  const auto& b = body(impl_);
  return {b.view.dtype, b.global, b.layout};
}

int64_t Tensor::size(int64_t dim) const {
  const Shape& s = shape();
  int64_t d = dim < 0 ? dim + s.rank() : dim;
  if (d < 0 || d >= s.rank())
    throw ShapeError("[size] dim " + std::to_string(dim) + " is out of range for " + to_string(type()));
  return s[d];
}

Tensor Tensor::local() const {
  const auto& b = body(impl_);
  return detail::make_view(*this, b.view, b.view.shape, nullptr);
}

Tensor Tensor::detach() const {
  const auto& b = body(impl_);
  return detail::make_view(*this, b.view, b.global, b.layout);
}

void* Tensor::data_checked(DType expected) const {
  const auto& b = body(impl_);
  if (b.view.dtype != expected)
    throw DTypeError("[data] " + to_string(type()) + " does not hold " + std::string(to_string(expected)) +
                     "; cast it first");
  if (b.device != Device::Cpu)
    throw ValueError("[data] the elements of a " + std::string(to_string(b.device)) + " tensor are not in host memory");
  return detail::elements(*this).data;
}

int64_t numel(const Tensor& x) { return numel(x.shape()); }

}  // namespace cleave
