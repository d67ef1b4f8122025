// Byte-level BPE: text as tokens, and back (Sennrich et al. 2016; on bytes as in GPT-2, Radford et al. 2019).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpt/added_tokens.h"
#include "gpt/normalizer.h"
#include "gpt/pretokenizer.h"

namespace gpt {

/// What stands between two documents, where a vocabulary has it.
inline constexpr const char* kEndOfText = "<|endoftext|>";

/// All that a tokenizer is.
struct BpeModel {
  std::vector<std::string> tokens;                     ///< the bytes of each token, by id; "": no token has the id
  std::vector<std::pair<uint32_t, uint32_t>> merges;   ///< of two tokens into the one with the bytes of both; first
                                                       ///< ones go first
  std::vector<AddedToken> added;                       ///< their texts are among the tokens
  std::vector<NormalizerStep> normalizer = {};         ///< none: text stays as it is
  std::vector<std::string> patterns = {kGpt2Pattern};  ///< see Pretokenizer
  bool ignore_merges = false;  ///< a piece that is a token is that one, whatever merging makes of it
};

class Bpe {
 public:
  /// Throws ValueError for a merge of no tokens or into none, for added tokens that are not among the tokens, and for a
  /// normalizer or a pattern that cannot be used.
  explicit Bpe(BpeModel model);
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  int64_t vocab_size() const { return static_cast<int64_t>(model_.tokens.size()); }
  /// The tokens of any bytes, UTF-8 or not. With `added`, text that reads like an added token is that token (see
  /// AddedTokens); without, it is text like any other, as untrusted text should be. Throws ValueError for a byte that
  /// the vocabulary lacks.
  std::vector<uint32_t> encode(std::string_view text, bool added = true) const;
  /// The bytes of these tokens; `decode(encode(text)) == text`, unless the tokenizer has a normalizer, or added tokens
  /// take white space. Throws ValueError for an id without a token.
  std::string decode(std::span<const uint32_t> ids) const;
  std::string decode(uint32_t id) const { return decode(std::span(&id, 1)); }
  /// The id of the added token with this text, or -1.
  int64_t added_token(std::string_view text) const;
  const BpeModel& model() const { return model_; }

 private:
  struct Merge {
    uint32_t rank, token;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Cache = std::unordered_map<std::string, std::vector<uint32_t>, Hash, std::equal_to<>>;
  void encode_text(std::string_view text, Cache& cache, std::vector<uint32_t>& out) const;
  std::vector<uint32_t> merged(std::string_view piece) const;

  BpeModel model_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  std::unordered_map<uint64_t, Merge> merges_;               // by both tokens
  std::unordered_map<std::string_view, uint32_t> by_bytes_;  // of those that merges may make; views of model_.tokens
  std::vector<bool> special_;                                // by id
  std::vector<int64_t> byte_tokens_;                         // by byte; -1: none
  AddedTokens first_, behind_normalizer_;
};

}  // namespace gpt
