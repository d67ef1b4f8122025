// Learning a byte-level BPE vocabulary from text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpt/bpe.h"

namespace gpt {

struct BpeTrainOptions {
  int64_t vocab_size = 4096;  ///< special tokens, the 256 bytes, and merges; fewer if the text has no more pairs
  int64_t min_frequency = 2;  ///< pairs seen less often are not merged
  std::vector<std::string> special = {kEndOfText};
  std::vector<std::string> patterns = {kGpt2Pattern};
};

/// How often each piece was seen.
struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using PieceCounts = std::unordered_map<std::string, int64_t, PieceHash, std::equal_to<>>;
void count_pieces(const Pretokenizer& pretokenizer, std::string_view text, PieceCounts& counts);

/// Merges the pair seen most often, of equals the one of the smaller ids (left, then right), until the vocabulary is
/// full. Special tokens have the first ids, then come the bytes in the order of Hugging Face's byte alphabet. The
/// counts alone decide, so the order of the text does not matter. Each merge costs the pieces that hold the pair.
/// Throws ValueError for a vocabulary smaller than bytes and special tokens.
BpeModel train_bpe(const PieceCounts& counts, const BpeTrainOptions& options);

}  // namespace gpt
