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

/// A part of a tensor that has a hash of its own.
struct StoredChunk {
  const StoredTensor* tensor = nullptr;
  int64_t number = 0;
};

struct CheckpointFiles {
  Together ranks;
  std::string path;
  std::optional<Manifest> manifest;
  std::vector<SafetensorsFile> files;
  std::map<std::string, StoredGroup> groups;
  CheckpointValues values;
  /// Tells apart files that differ: the hash of the manifest, else of the headers.
  uint64_t identity = 0;
  /// By file and tensor, the chunks that this rank has hashed and found right.
  std::vector<std::map<std::string, std::vector<bool>>> verified;

  const StoredGroup& group(const std::string& name) const;
  int64_t chunks_of(const StoredTensor& tensor) const;
  /// Appends the chunks that a box touches and that were not verified yet. Nothing without a manifest.
  void list_chunks(const StoredTensor& tensor, const dist::Box& box, std::vector<StoredChunk>& out) const;
  /// Hashes them on this rank's threads. Throws FileError naming tensor and bytes of the first that is damaged.
  void verify(const std::vector<StoredChunk>& chunks);
  /// A box's elements, plain and dense.
  Tensor read(const StoredTensor& tensor, const dist::Box& box) const {
    return files[tensor.file].read(*tensor.entry, box);
  }
};

/// Throws FileError unless all ranks have opened files of one identity. Collective.
void require_one(const CheckpointFiles& files);
/// Opens and checks on this rank alone.
void open_files(CheckpointFiles& out, const std::string& path);
/// Only what `find_latest` needs to say that a folder is complete: manifest, sizes, headers. Throws FileError.
void require_complete(const std::string& folder);

}  // namespace cleave::nn::detail
