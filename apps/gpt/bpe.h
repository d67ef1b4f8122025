// Byte-level BPE: text as tokens, and back (Sennrich et al. 2016; on bytes as in GPT-2, Radford et al. 2019).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpt/pretokenizer.h"

namespace gpt {

/// What stands between two documents, where a vocabulary has it.
inline constexpr const char* kEndOfText = "<|endoftext|>";

/// A token that is found in the text before anything else.
struct AddedToken {
  std::string text;
  uint32_t id = 0;
  bool special = true;  ///< a mark, not a part of the text
};

/// All that a tokenizer is.
struct BpeModel {
  std::vector<std::string> tokens;                    ///< the bytes of each token, by id; "": no token has the id
  std::vector<std::pair<uint32_t, uint32_t>> merges;  ///< of two tokens into the one with the bytes of both; first
                                                      ///< ones go first
  std::vector<AddedToken> added;
  std::string pattern = kGpt2Pattern;  ///< see Pretokenizer
  bool ignore_merges = false;          ///< a piece that is a token is that one, whatever merging makes of it
};

class Bpe {
 public:
  /// Throws ValueError for a merge of no tokens or into none, for added tokens that are not among the tokens, and for a
  /// pattern that cannot be used.
  explicit Bpe(BpeModel model);
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  int64_t vocab_size() const { return static_cast<int64_t>(model_.tokens.size()); }
  /// The tokens of any bytes, UTF-8 or not. With `added`, text that reads like an added token is that token (of several
  /// at one place the longest); without, it is text like any other, as untrusted text should be. Throws ValueError for
  /// a byte that the vocabulary lacks.
  std::vector<uint32_t> encode(std::string_view text, bool added = true) const;
  /// The bytes of these tokens; `decode(encode(text)) == text`. Throws ValueError for an id without a token.
  std::string decode(std::span<const uint32_t> ids) const;
  std::string decode(uint32_t id) const { return decode(std::span(&id, 1)); }
  /// The id of the added token with this text, or -1.
  int64_t added_token(std::string_view text) const;
  const BpeModel& model() const { return model_; }

 private:
  struct Merge {
    uint32_t rank, token;
  };
  using Cache = std::unordered_map<std::string_view, std::vector<uint32_t>>;
  void encode_text(std::string_view text, Cache& cache, std::vector<uint32_t>& out) const;
  std::vector<uint32_t> merged(std::string_view piece) const;
  const AddedToken* added_at(std::string_view text) const;

  BpeModel model_;
  Pretokenizer pretokenizer_;
  std::unordered_map<uint64_t, Merge> merges_;               // by both tokens
  std::unordered_map<std::string_view, uint32_t> by_bytes_;  // of those that are not added; views of model_.tokens
  std::vector<int64_t> byte_tokens_;                         // by byte; -1: none
  std::vector<AddedToken> longest_first_;
};

}  // namespace gpt
