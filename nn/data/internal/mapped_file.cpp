#include <cleave/core/error.h>
#include <cleave/nn/data/internal/mapped_file.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave::nn::detail {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw FileError(fmt::format("{} cannot be read: {}", path, what));
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

std::vector<uint8_t> read_all(int descriptor, int64_t size, const std::string& path) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  for (size_t at = 0; at < bytes.size();) {
    ssize_t got = read(descriptor, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, std::strerror(errno));
    if (got == 0) fail(path, "it became shorter while it was read");
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path), status_{} {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0 || fstat(file.number, &status_) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status_.st_mode)) fail(path, "it is no regular file");
  size_ = static_cast<int64_t>(status_.st_size);
  if (size_ < kSmallFile) {
    copy_ = read_all(file.number, size_, path);
    data_ = copy_.data();
    return;
  }
  void* pages = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.number, 0);
  if (pages == MAP_FAILED) fail(path, std::strerror(errno));
  data_ = static_cast<const uint8_t*>(pages);
}

MappedFile::~MappedFile() {
  if (size_ >= kSmallFile) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

void MappedFile::require_unchanged() const {
  struct stat now {};
  if (size_ < kSmallFile || stat(path_.c_str(), &now) != 0) return;
  if (now.st_dev != status_.st_dev || now.st_ino != status_.st_ino) return;  // replaced: the old one is still mapped
  bool written = now.st_mtim.tv_sec != status_.st_mtim.tv_sec || now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec;
  if (written || now.st_size != status_.st_size)
    throw FileError(path_ + " was written to while it is being read; write a new file and rename it over this one");
}

void MappedFile::will_need(int64_t first, int64_t count) const {
  if (size_ < kSmallFile || count <= 0) return;
  static const auto kPage = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  int64_t begin = first / kPage * kPage;
  madvise(const_cast<uint8_t*>(data_) + begin, static_cast<size_t>(first + count - begin), MADV_WILLNEED);
}

}  // namespace cleave::nn::detail
