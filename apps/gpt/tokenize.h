// gpt tokenize: text becomes a token file, with a vocabulary that is read or learned.
#pragma once
#include <cstdint>
#include <string>

#include "gpt/bpe.h"

namespace gpt {

struct TokenizeOptions {
  std::string data = {};         ///< file or folder of text; each file is a document, and is held in memory with its
                                 ///< tokens while it is encoded: one for each thread, or 64 MB of small ones
  std::string out = {};          ///< the token file (nn/data/token_file.h); the tokenizer stands beside it as *.json
  std::string tokenizer = {};    ///< a tokenizer to read (see read_tokenizer), or "": one is learned
  int64_t vocab_size = 4096;     ///< of a learned one
  int64_t threads = 0;           ///< 0: one per core
  std::string end = kEndOfText;  ///< the token after each document; a learned vocabulary has it first
};

struct TokenizeSummary {
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t tokens = 0;  ///< with one `end` after each document
  int64_t vocab = 0;
  std::string tokenizer;  ///< where it was written
};
/// "12 files, 48213 bytes: 13120 tokens (3.67 bytes each) of a vocabulary of 4096".
std::string to_string(const TokenizeSummary& summary);

/// The tokenizer that `tokenize` writes for a token file: x.json for x.bin.
std::string tokenizer_beside(const std::string& token_file);

/// Writes `out` and the tokenizer; the result does not depend on the number of threads. After each document stands
/// `end`; text that reads like it stays text. What stands in `out` and its tokenizer from before is not read. Throws
/// FileError for files that cannot be read or written, hold no text or are token files, ValueError for a tokenizer
/// without `end`, a vocabulary too small, and an `out` named *.json.
TokenizeSummary tokenize(const TokenizeOptions& options);

}  // namespace gpt
