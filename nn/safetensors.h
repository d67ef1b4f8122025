// The safetensors format: 8 bytes with the length of a JSON header, the header, the tensors' bytes
// (https://github.com/huggingface/safetensors). Files of any origin, trusted or not.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::nn {

namespace detail {
class MappedFile;
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// `__metadata__` of a file: text by name.
using Metadata = std::map<std::string, std::string>;

/// One tensor of a file; its elements lie dense, row-major, little-endian.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};
  int64_t offset = 0;  ///< of its first byte in the file
  int64_t bytes = 0;
};

/// A file, mapped: opening reads the header alone, and reading a part of a tensor touches that part alone. The header
/// is checked whole: lengths, names that stand twice, dtypes (F64 F32 BF16 F16 I64 I32 U8 BOOL, else FileError), shapes
/// of up to 8 dims, and byte ranges that cover the data without gaps or overlaps. Nothing is allocated on the word of
/// the file. A file must not be changed in place while it is open; replacing it by a rename is fine.
class SafetensorsFile {
 public:
  /// Throws FileError naming the file, the tensor and the fault. Does not communicate.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return path_; }
  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  /// Null if the file lacks it.
  const SafetensorsEntry* find(std::string_view name) const;
  /// Bytes of the header with the 8 before it, and of the file.
  int64_t header_bytes() const { return header_bytes_; }
  int64_t file_bytes() const;

  /// The bytes of a tensor, as mapped: not aligned.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// A plain tensor of the whole. Throws FileError for a name that the file lacks, and for bools other than 0 and 1.
  Tensor read(std::string_view name) const;
  /// A plain tensor of one box. Throws ShapeError for a box outside the tensor.
  Tensor read(const SafetensorsEntry& entry, const dist::Box& box) const;
  /// The same into memory for the box's elements, dense and row-major: one copy from the mapped file.
  void read(const SafetensorsEntry& entry, const dist::Box& box, void* memory) const;

 private:
  std::string path_;
  std::unique_ptr<detail::MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
  Metadata metadata_;
  int64_t header_bytes_ = 0;
};

/// Writes a file that holds the tensors' global values, byte for byte the one that the reference implementation would
/// write: wider dtypes first, then by name. Every rank calls with the same names and types and writes the boxes it
/// holds; of replicas one does, and they share the load. The file takes its name when it is complete and on the disk:
/// until then, and after any failure, the name is what it was before. Communicates. Throws ValueError for a name that
/// stands twice, FileError alike on all ranks.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace cleave::nn
