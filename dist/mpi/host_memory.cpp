#include <cleave/dist/mpi/host_memory.h>

#include <cleave/core/error.h>

#include <algorithm>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace cleave::dist::detail {

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Segment::~Segment() {
  if (data_) munmap(data_, bytes_);
  close();
}

void Segment::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::optional<Segment> Segment::map(int descriptor, size_t bytes) {
  if (descriptor < 0) return std::nullopt;
  Segment segment;
  segment.descriptor_ = descriptor;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return std::nullopt;
  segment.data_ = static_cast<std::byte*>(data);
  segment.bytes_ = bytes;
#ifdef MADV_HUGEPAGE
  constexpr size_t kHuge = size_t{2} << 20;
  if (bytes >= kHuge) madvise(data, bytes, MADV_HUGEPAGE);  // where the system allows it for shared memory
#endif
  return segment;
}

std::optional<Segment> Segment::create(size_t bytes) {
#ifdef __linux__
  int descriptor = memfd_create("cleave", MFD_CLOEXEC);
  if (descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    ::close(descriptor);
    return std::nullopt;
  }
  return map(descriptor, bytes);
#else
  (void)bytes;
  return std::nullopt;
#endif
}

std::optional<Segment> Segment::open(int pid, int descriptor, size_t bytes) {
  if (descriptor < 0) return std::nullopt;
  std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status;  // another size: some other file, of another process of that number
  if (opened >= 0 && (fstat(opened, &status) != 0 || status.st_size != static_cast<off_t>(bytes))) {
    ::close(opened);
    return std::nullopt;
  }
  auto segment = map(opened, bytes);
  if (segment) segment->close();
  return segment;
}

std::shared_ptr<void> HostMemory::allocate(int64_t bytes) {
  constexpr size_t kPage = 4096;
  size_t wanted = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kPage - 1) / kPage * kPage;
  std::lock_guard lock(mutex_);
  Own* found = nullptr;
  for (auto& [data, own] : own_)
    if (!own.used && own.segment.bytes() >= wanted && own.segment.bytes() / 2 <= wanted &&
        (!found || own.segment.bytes() < found->segment.bytes()))
      found = &own;
  if (!found) {
    auto fresh = Segment::create(wanted);
    if (!fresh) return nullptr;
    const std::byte* data = fresh->data();
    found = &own_.try_emplace(data, Own{std::move(*fresh)}).first->second;
  }
  found->used = true;
  return {found->segment.data(), [self = shared_from_this()](void* p) { self->give(static_cast<std::byte*>(p)); }};
}

void HostMemory::give(std::byte* data) {
  std::lock_guard lock(mutex_);
  own_.at(data).used = false;
}

bool HostMemory::locate(const void* data, int64_t bytes, Address& address) {
  auto* p = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  auto it = own_.upper_bound(p);
  if (it == own_.begin()) return false;
  const Segment& segment = std::prev(it)->second.segment;
  auto offset = static_cast<size_t>(p - segment.data());
  if (offset + static_cast<size_t>(bytes) > segment.bytes()) return false;
  address = {segment.descriptor(), offset, segment.bytes()};
  return true;
}

std::byte* HostMemory::address(int rank, int pid, const Address& a) {
  std::pair key{rank, a.segment};
  std::lock_guard lock(mutex_);
  auto it = mapped_.find(key);
  if (it == mapped_.end()) {
    auto segment = Segment::open(pid, a.segment, a.bytes);
    if (!segment) throw CommError(fmt::format("[mpi] the memory of rank {} cannot be mapped: {} bytes", rank, a.bytes));
    it = mapped_.emplace(key, std::move(*segment)).first;
  }
  return it->second.data() + a.offset;
}

}  // namespace cleave::dist::detail
