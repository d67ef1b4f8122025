// manifest.json, state.json and index files of a checkpoint, as text.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <cleave/nn/checkpoint.h>

namespace cleave::nn::detail {

inline constexpr int64_t kChunkBytes = int64_t{1} << 20;
inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kState = "state.json";

uint64_t xxh3(const void* data, int64_t bytes);

struct ManifestFile {
  int64_t bytes = 0;
  uint64_t hash = 0;  ///< of the header of a safetensors file (with the 8 bytes of its length), else of all
  std::map<std::string, std::vector<uint64_t>> chunks{};  ///< by tensor
};
struct Manifest {
  int64_t chunk_bytes = kChunkBytes;
  std::map<std::string, std::vector<std::string>> groups{};  ///< files in order
  std::map<std::string, ManifestFile> files{};
};

int64_t chunks_of(int64_t bytes, int64_t chunk_bytes);
std::string to_text(const Manifest& manifest);
/// Throws FileError about `path` for anything that to_text would not have written.
Manifest read_manifest(const std::string& text, const std::string& path);

std::string to_text(const CheckpointValues& values);
CheckpointValues read_values(const std::string& text, const std::string& path);

/// Hugging Face's: the file of every tensor.
std::string index_text(const std::map<std::string, std::string>& file_of, int64_t total_bytes);
std::map<std::string, std::string> read_index(const std::string& text, const std::string& path);

}  // namespace cleave::nn::detail
