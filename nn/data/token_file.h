// Token files: one long sequence of tokens on disk, mapped into memory.
//
// The format, all numbers little-endian:
//
//   byte  0  8 bytes  "cleavtok"
//         8  u32      version, 2
//        12  u32      bytes per token: 1, 2 or 4
//        16  u64      number of tokens
//        24  u64      vocabulary: every token is below it
//        32  u64      number of documents; 0: not recorded
//        40  u64      XXH3 (64 bits) of the tokens' bytes, without the zeros behind them
//        48           zeros up to byte 64
//        64           the tokens, then zeros up to a multiple of 8 bytes
//                     u64 per document: the index of its first token, ascending; the first is 0
//
// The file ends there: any other length is an error.
#pragma once
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cleave::nn {

/// A sequence of tokens in a file: one of the format above, or the bytes of any file (vocabulary 256). A handle to
/// content that does not change; copies share the mapping. A file may be replaced (renamed over, removed) while it is
/// open. One that is written to or cut is an error at the next read; cutting it during a read ends the process.
class TokenFile {
 public:
  /// Opens a file of the format above. Throws FileError, naming the file and the fault, unless its header fits its
  /// length. Tokens are looked at when they are read.
  static TokenFile open(const std::string& path);
  /// Opens any file as text: its bytes are the tokens. Throws FileError if it cannot be read.
  static TokenFile text(const std::string& path);
  /// Whether the file begins as the format does.
  static bool is_token_file(const std::string& path);

  const std::string& path() const;
  int64_t size() const;       ///< tokens
  int64_t vocab() const;      ///< of text: 256
  int token_bytes() const;    ///< 1, 2 or 4
  bool is_text() const;       ///< opened by `text`
  int64_t documents() const;  ///< 0: not recorded
  /// The index of the document that holds token `position`, or -1 if documents are not recorded.
  int64_t document_of(int64_t position) const;
  /// Copies tokens first, ..., first + count - 1. Throws ValueError outside the file, FileError naming file and
  /// position for a token that is not below `limit` (0: below vocab()), and for a file that was changed.
  void read(int64_t first, int64_t count, int64_t* out, int64_t limit = 0) const;
  /// Says that these tokens, of those that are there, will be read soon. The disk begins with all that is asked for
  /// before the first is read, and reads no more than that.
  void will_read(int64_t first, int64_t count) const;
  /// XXH3 (64 bits) of the tokens' bytes. A token file's is the one in its header, of text it is computed when it is
  /// first asked for, from all bytes.
  uint64_t hash() const;
  /// Reads the whole file. Throws FileError if the tokens are not those that hash() is of.
  void verify() const;

 private:
  struct Content;
  explicit TokenFile(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
  std::shared_ptr<const Content> content_;
};

/// Writes a token file piece by piece. It takes its name only when it is complete; before that, and if `commit` is
/// never reached, there is no file of that name or the one that was there before.
class TokenFileWriter {
 public:
  /// Tokens take 2 bytes if `vocab` is at most 65536, else 4. Throws ValueError unless vocab is from 1 to 2^32,
  /// FileError if the file cannot be made.
  TokenFileWriter(const std::string& path, int64_t vocab);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// The next tokens begin a document.
  void begin_document();
  /// Throws ValueError for a token that is not below the vocabulary, FileError on a full disk.
  void append(std::span<const uint32_t> tokens);
  int64_t size() const { return size_; }  ///< tokens so far
  /// Throws FileError if the file cannot be completed.
  void commit();

 private:
  std::string path_, temporary_;
  int64_t vocab_ = 0, size_ = 0;
  int token_bytes_ = 0;
  struct Hash;
  std::unique_ptr<Hash> hash_;
  std::vector<uint64_t> documents_;
  std::ofstream file_;
};

}  // namespace cleave::nn
