// Text to train on: the bytes of files, and batches of windows from them.
#pragma once
#include <cleave/core/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

/// Bytes are tokens.
struct Corpus {
  std::string source;  ///< the path it was read from
  int64_t files = 0;
  std::vector<uint8_t> train;
  std::vector<uint8_t> held_out;  ///< the last 5 %
};

/// The folder of the C++ standard library's headers on this machine. Throws FileError if there is none.
std::string default_data();

/// Reads a file, or every regular file below a folder in the order of their paths, one after the other. Throws
/// FileError for a path that is missing, unreadable or empty, ValueError if either part is shorter than `window` bytes
/// or a byte is no token of `vocab`.
Corpus load_corpus(const std::string& path, int64_t window, int64_t vocab);

/// Inputs and the tokens that follow them: i64 [batch, seq], plain, the same on all ranks.
struct Batch {
  cleave::Tensor ids, targets;
};
/// The windows that start at these bytes.
Batch windows(const std::vector<uint8_t>& text, const std::vector<int64_t>& starts, int64_t seq);
/// Random windows: a function of seed and step alone.
Batch random_batch(const std::vector<uint8_t>& text, int64_t batch, int64_t seq, uint64_t seed, int64_t step);
/// Starts of `count` windows spread evenly over the text.
std::vector<int64_t> even_starts(int64_t text_size, int64_t count, int64_t seq);

/// A number that tells apart texts that differ (FNV-1a).
uint64_t hash_of(const Corpus& corpus);

}  // namespace gpt
