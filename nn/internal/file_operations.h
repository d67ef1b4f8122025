// What a save does to the disk, step by step: an interface, so that tests can fail or end at each.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::nn::detail {

/// Files that are written. All functions throw FileError naming the path and the system's reason.
class FileOperations {
 public:
  virtual ~FileOperations();
  /// A new folder; its parent must exist and it must not.
  virtual void make_folder(const std::string& path);
  /// A new or emptied file of `bytes` zeros, open for writing; returns its descriptor.
  virtual int create(const std::string& path, int64_t bytes);
  /// A file that exists, open for reading and writing.
  virtual int open(const std::string& path);
  virtual void write(int file, const std::string& path, const void* data, int64_t bytes, int64_t offset);
  virtual void sync(int file, const std::string& path);
  /// Makes names in the folder last.
  virtual void sync_folder(const std::string& path);
  virtual void rename(const std::string& from, const std::string& to);
  /// Swaps two names in one step; false where the file system cannot.
  virtual bool exchange(const std::string& a, const std::string& b);
  /// A file, or a folder with all that is in it; nothing if there is none.
  virtual void remove(const std::string& path);

  /// Those of the operating system.
  static FileOperations& system();
};

/// A file open for writing.
class OutputFile {
 public:
  OutputFile() = default;
  /// A new one of `bytes` zeros.
  OutputFile(FileOperations& files, std::string path, int64_t bytes);
  /// One that another rank has made.
  OutputFile(FileOperations& files, std::string path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  void write(const void* data, int64_t bytes, int64_t offset) { files_->write(file_, path_, data, bytes, offset); }
  void sync() { files_->sync(file_, path_); }
  /// Exactly these bytes, from the file.
  void read(void* data, int64_t bytes, int64_t offset) const;
  const std::string& path() const { return path_; }

 private:
  FileOperations* files_ = nullptr;
  std::string path_;
  int file_ = -1;
};

/// A file with this text, on the disk when it returns (its name in the folder is not: see sync_folder).
void write_text(FileOperations& files, const std::string& path, const std::string& text);
/// The bytes of a small file. Throws FileError, also above `limit` bytes.
std::string read_text(const std::string& path, int64_t limit = int64_t{256} << 20);
bool exists(const std::string& path);
/// The folder that the path is in, "." if it names none.
std::string parent_folder(const std::string& path);
/// Its last part, without slashes.
std::string last_name(const std::string& path);

}  // namespace cleave::nn::detail
