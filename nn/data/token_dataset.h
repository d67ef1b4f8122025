// TokenDataset: the tokens of a file or of all files in a folder, one after the other.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cleave/nn/data/token_file.h>

namespace cleave::nn {

/// A file, or every regular file below a folder in the order of their paths: links are followed, names that begin with
/// a dot are left out. Throws FileError for a path that is missing, unreadable, or neither, and for a link to nothing
/// or to a folder that it is in.
std::vector<std::string> files_below(const std::string& path);

/// Where a token came from.
struct TokenLocation {
  std::string path;
  int64_t offset = 0;     ///< in tokens from the file's start (of text: bytes)
  int64_t document = -1;  ///< counted in that file; -1: not recorded
};
/// "corpus/b.bin, token 81920, document 12".
std::string to_string(const TokenLocation& location);

/// A long sequence of tokens, or a part of one. A handle: copies and parts share the mapped files. Threads may read one
/// dataset together.
class TokenDataset {
 public:
  /// A token file, a file of text (bytes are tokens), or a folder: its `files_below`, without *.json beside token files
  /// (tokenizers). A file is taken for a token file if it begins as one or is named *.bin or *.tokens, else for text.
  /// `vocab` bounds the tokens further (0: as the files say). Throws FileError, naming the file, for what is missing,
  /// unreadable, malformed or empty, and for a folder that mixes text and token files or token files of several
  /// vocabularies.
  explicit TokenDataset(const std::string& path, int64_t vocab = 0);
  /// The same tokens, bounded by `vocab` if that is smaller.
  TokenDataset bounded(int64_t vocab) const;

  int64_t size() const { return last_ - first_; }  ///< tokens
  /// Every token is below it: that of the files, or what was asked for.
  int64_t vocab() const;
  const std::string& source() const;  ///< the path given
  int64_t files() const;              ///< also those outside this part
  bool is_text() const;

  /// Tokens first, ..., last - 1. Throws ValueError unless 0 <= first <= last <= size().
  TokenDataset range(int64_t first, int64_t last) const;
  /// Without and with the last floor(fraction * size()) tokens: to train on, and to hold out. Throws ValueError unless
  /// fraction is from 0 to 1.
  std::pair<TokenDataset, TokenDataset> split(double fraction) const;

  /// Copies tokens first, ..., first + count - 1. Throws ValueError outside the part; FileError, naming file and
  /// position, for a token that is not below vocab().
  void read(int64_t first, int64_t count, int64_t* out) const;
  /// A hint that these tokens will be read soon (TokenFile::will_read).
  void will_read(int64_t first, int64_t count) const;
  /// Reads every token once. Throws FileError for the first that is not below vocab().
  void check() const;
  /// Reads every byte of all files. Throws FileError for a token file that is not as it was written.
  void verify() const;
  TokenLocation locate(int64_t position) const;

  /// Tells apart data that differ: of the hashes of all files (TokenFile::hash), their sizes, vocab(), and which part
  /// of them this is. Text is read whole for it, once; of token files the headers are: `verify` tells whether they are
  /// true.
  uint64_t fingerprint() const;

 private:
  struct Content;
  TokenDataset(std::shared_ptr<const Content> content, int64_t first, int64_t last, int64_t vocab)
      : content_(std::move(content)), first_(first), last_(last), vocab_(vocab) {}
  std::shared_ptr<const Content> content_;
  int64_t first_ = 0, last_ = 0, vocab_ = 0;
};

}  // namespace cleave::nn
