#include <cleave/core/error.h>
#include <cleave/nn/internal/file_operations.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave::nn::detail {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error = errno) {
  throw FileError(fmt::format("{} cannot be {}: {}", path, what, std::strerror(error)));
}

int open_file(const std::string& path, int flags, const char* what) {
  int file;
  do file = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (file < 0 && errno == EINTR);
  if (file < 0) fail(path, what);
  return file;
}

struct Closing {
  int file;
  ~Closing() { ::close(file); }
};

}  // namespace

FileOperations::~FileOperations() = default;

void FileOperations::make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0) fail(path, "made");
}

int FileOperations::create(const std::string& path, int64_t bytes) {
  int file = open_file(path, O_RDWR | O_CREAT | O_TRUNC, "written");
  if (ftruncate(file, bytes) == 0) return file;
  int error = errno;
  ::close(file);
  fail(path, "written", error);
}

int FileOperations::open(const std::string& path) { return open_file(path, O_RDWR, "written"); }

void FileOperations::write(int file, const std::string& path, const void* data, int64_t bytes, int64_t offset) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(file, at, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path, "written", written == 0 ? ENOSPC : errno);
    at += written, offset += written, bytes -= written;
  }
}

void FileOperations::sync(int file, const std::string& path) {
  if (fsync(file) != 0) fail(path, "written");
}

void FileOperations::sync_folder(const std::string& path) {
  Closing folder{open_file(path, O_RDONLY | O_DIRECTORY, "written")};
  // Some network file systems do not sync folders; there the server does.
  if (fsync(folder.file) != 0 && errno != EINVAL && errno != ENOTSUP) fail(path, "written");
}

void FileOperations::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "written");
}

bool FileOperations::exchange(const std::string& a, const std::string& b) {
#ifdef RENAME_EXCHANGE
  return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;
#endif
}

void FileOperations::remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw FileError(fmt::format("{} cannot be removed: {}", path, error.message()));
}

FileOperations& FileOperations::system() {
  static FileOperations files;  // has no state
  return files;
}

OutputFile::OutputFile(FileOperations& files, std::string path, int64_t bytes)
    : files_(&files), path_(std::move(path)), file_(files.create(path_, bytes)) {}
OutputFile::OutputFile(FileOperations& files, std::string path)
    : files_(&files), path_(std::move(path)), file_(files.open(path_)) {}
OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}
OutputFile::OutputFile(OutputFile&& other) noexcept
    : files_(other.files_), path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void OutputFile::read(void* data, int64_t bytes, int64_t offset) const {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t got = pread(file_, at, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(path_, "read", got == 0 ? EIO : errno);
    at += got, offset += got, bytes -= got;
  }
}

void write_text(FileOperations& files, const std::string& path, const std::string& text) {
  OutputFile file(files, path, 0);
  file.write(text.data(), static_cast<int64_t>(text.size()), 0);
  file.sync();
}

std::string read_text(const std::string& path, int64_t limit) {
  Closing file{open_file(path, O_RDONLY, "read")};
  struct stat status {};
  if (fstat(file.file, &status) != 0) fail(path, "read");
  if (!S_ISREG(status.st_mode)) throw FileError(fmt::format("{} cannot be read: it is no regular file", path));
  if (status.st_size > limit)
    throw FileError(fmt::format("{} has {} bytes, and at most {} make sense", path, status.st_size, limit));
  std::string text(static_cast<size_t>(status.st_size), 0);
  for (size_t at = 0; at < text.size();) {
    ssize_t got = ::read(file.file, text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "read");
    if (got == 0) throw FileError(fmt::format("{} became shorter while it was read", path));
    at += static_cast<size_t>(got);
  }
  return text;
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::string last_name(const std::string& path) {
  std::string_view text = path;
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  return std::string(text.substr(text.rfind('/') + 1));
}

std::string parent_folder(const std::string& path) {
  std::string_view text = path;
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  size_t slash = text.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(text.substr(0, std::max<size_t>(slash, 1)));
}

}  // namespace cleave::nn::detail
