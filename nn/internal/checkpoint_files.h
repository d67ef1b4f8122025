// The files of a checkpoint that is open, and what of them has been verified.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <cleave/nn/checkpoint.h>
#include <cleave/nn/internal/manifest.h>
#include <cleave/nn/internal/together.h>

namespace cleave::nn::detail {

/// One tensor in one of the files.
struct StoredTensor {
  size_t file = 0;
  const SafetensorsEntry* entry = nullptr;
};

struct StoredGroup {
  std::map<std::string, StoredTensor> tensors;
  Metadata metadata;
};

struct CheckpointFiles {
  Together ranks;
  std::string path;
  std::optional<Manifest> manifest;
  std::vector<SafetensorsFile> files;
  std::map<std::string, StoredGroup> groups;
  CheckpointValues values;
  /// By file and tensor, the chunks that this rank has hashed and found right.
  std::vector<std::map<std::string, std::vector<bool>>> verified;

  const StoredGroup& group(const std::string& name) const;
  /// Hashes the chunks that a box touches, unless that was done. Throws FileError naming tensor and chunk. Nothing
  /// without a manifest.
  void verify(const StoredTensor& tensor, const dist::Box& box);
  /// One chunk.
  void verify(const StoredTensor& tensor, int64_t chunk);
  /// A box's elements, plain and dense.
  Tensor read(const StoredTensor& tensor, const dist::Box& box) const {
    return files[tensor.file].read(*tensor.entry, box);
  }
};

/// Opens and checks on this rank alone.
void open_files(CheckpointFiles& out, const std::string& path);
/// Only what `find_latest` needs to say that a folder is complete: manifest, sizes, headers. Throws FileError.
void require_complete(const std::string& folder);

}  // namespace cleave::nn::detail
