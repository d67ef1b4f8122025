// What a GPT is made of; written into the file that `gpt train --save` makes.
#pragma once
#include <cstdint>
#include <string>

namespace gpt {

/// The defaults are workload W1: 1.9 million parameters.
struct Config {
  int64_t vocab = 256;
  int64_t layers = 4;
  int64_t dim = 192;
  int64_t heads = 6;
  int64_t kv_heads = 0;  ///< 0: as many as heads
  int64_t ffn = 0;       ///< 0: 4 * dim
  int64_t seq = 128;     ///< the longest context
  double dropout = 0;
  bool tied = false;                  ///< the head is the token embedding
  std::string positions = "learned";  ///< or "rope"
  std::string norm = "layer";         ///< or "rms"
  std::string tokenizer = {};         ///< file that its tokens come from; "": they are bytes

  friend bool operator==(const Config&, const Config&) = default;
};

/// With zeros filled in. Throws ValueError for sizes that do not fit, naming the option.
Config completed(Config config);

/// One JSON object; `parse_config` throws FileError for text that is none, or that lacks a field.
std::string to_json(const Config& config);
Config parse_config(const std::string& json);

}  // namespace gpt
