// A file's bytes, read-only: mapped, or read if there are few.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace cleave::nn::detail {

/// Below this many bytes a file is read instead of mapped: a mapping takes at least a page, and a process may have only
/// so many.
inline constexpr int64_t kSmallFile = int64_t{1} << 16;

class MappedFile {
 public:
  /// Throws FileError for a file that is missing, not regular, or unreadable.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Throws FileError if a mapped file was written to or cut since; a look at its metadata, if it still has its name.
  void require_unchanged() const;

  /// Starts to read these bytes from the disk, if they are not in memory. A hint.
  void will_need(int64_t first, int64_t count) const;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  std::string path_;
  struct stat status_;
  std::vector<uint8_t> copy_;  // of a small file; else it is mapped
};

}  // namespace cleave::nn::detail
