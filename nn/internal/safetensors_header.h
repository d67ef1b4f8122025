// Headers of safetensors files: read with suspicion, written as the reference implementation does.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cleave/nn/safetensors.h>

namespace cleave::nn::detail {

/// The format's limit, also of the reference reader.
inline constexpr uint64_t kLargestHeader = 100'000'000;

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<SafetensorsEntry> entries;  ///< by offset, which counts from the end of the header
};

/// Reads the JSON of a header whose file has `data_bytes` bytes behind it. Throws FileError about `path`.
SafetensorsHeader parse_header(std::string_view text, int64_t data_bytes, const std::string& path);

/// Puts the entries in the order of the reference writer (wider dtypes first, then names), gives each its offset in the
/// file and its bytes, and returns all that comes before the first: length and padded JSON.
std::string make_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata);

}  // namespace cleave::nn::detail
