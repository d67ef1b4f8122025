// Memory that the processes of one host share: anonymous files that others open through /proc. Nothing stays behind
// when processes are killed, and nobody needs a collective call to make it or to reach it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <cleave/dist/internal/shared_group.h>

namespace cleave::dist::detail {

/// Mapped pages.
class Segment {
 public:
  /// New pages, zeros; nullopt if the system refuses.
  static std::optional<Segment> create(size_t bytes);
  /// Those of another process, by its descriptor.
  static std::optional<Segment> open(int pid, int descriptor, size_t bytes);
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  /// Those who have mapped it keep it.
  void close();

 private:
  Segment() = default;
  static std::optional<Segment> map(int descriptor, size_t bytes);
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

/// Buffers of this rank that others can map, and others' that it has mapped. Freed buffers are kept for reuse, as
/// others keep their mappings of them.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Contents are unspecified. Null: the system gives none. May be freed on any thread.
  std::shared_ptr<void> allocate(int64_t bytes);
  /// Whether this rank's memory at `data` is in such a buffer.
  bool locate(const void* data, int64_t bytes, Address& address);
  /// Where that of process `pid`, which is world rank `rank`, lies here. Throws CommError if it cannot be mapped.
  std::byte* address(int rank, int pid, const Address& address);

 private:
  void give(std::byte* data);
  struct Own {
    Segment segment;
    bool used = true;
  };
  std::mutex mutex_;
  std::map<const std::byte*, Own> own_;            // by address
  std::map<std::pair<int, int>, Segment> mapped_;  // by rank and its descriptor
};

}  // namespace cleave::dist::detail
