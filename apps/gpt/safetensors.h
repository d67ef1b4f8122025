// The safetensors format: 8 bytes with the length of a JSON header, the header, the tensors' bytes.
#pragma once
#include <cleave/core/tensor.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace gpt {

/// Name and type of one tensor of a file; shapes are global.
struct TensorEntry {
  std::string name;
  cleave::DType dtype;
  cleave::Shape shape;
};
using Metadata = std::map<std::string, std::string>;

/// Writes a file tensor by tensor. It takes its name only when it is complete; before that, and if `commit` is never
/// reached, there is no file of that name or the one that was there before.
class SafetensorsWriter {
 public:
  /// Throws FileError if the file cannot be made.
  SafetensorsWriter(const std::string& path, const std::vector<TensorEntry>& entries, const Metadata& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next entry's elements: a plain tensor of its type (ShapeError otherwise). Throws FileError on a full disk.
  void write(const cleave::Tensor& tensor);
  /// Throws ShapeError if entries are missing, FileError if the file cannot be completed.
  void commit();

 private:
  std::string path_, temporary_;
  std::vector<TensorEntry> entries_;
  size_t written_ = 0;
  std::ofstream file_;
};

struct SafetensorsFile {
  Metadata metadata;
  std::map<std::string, cleave::Tensor> tensors;  ///< plain
};
/// Throws FileError, naming the file and what is wrong, for anything that is no complete file of this format.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace gpt
