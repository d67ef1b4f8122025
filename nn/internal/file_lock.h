// Who may write: a lock that ends with its process, however that ends.
#pragma once
#include <string>
#include <utility>

namespace cleave::nn::detail {

/// A lock on a file or folder that exists. Nothing is written for it. File systems without locks grant it to everyone.
class FileLock {
 public:
  FileLock() = default;
  /// Tries for so many seconds: a process that is ending may hold it still.
  explicit FileLock(const std::string& path, double seconds = 0);
  ~FileLock() { release(); }
  FileLock(FileLock&& other) noexcept
      : file_(std::exchange(other.file_, -1)), refused_(std::exchange(other.refused_, false)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(refused_, other.refused_);
    return *this;
  }

  /// Another one has it: of another process, or of this one.
  bool refused() const { return refused_; }
  void release();

 private:
  int file_ = -1;
  bool refused_ = false;
};

}  // namespace cleave::nn::detail
