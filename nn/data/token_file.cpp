#include <cleave/core/error.h>
#include <cleave/nn/data/internal/mapped_file.h>
#include <cleave/nn/data/token_file.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>

#include <fmt/format.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cleave::nn {

namespace {

constexpr std::array<char, 8> kMagic = {'c', 'l', 'e', 'a', 'v', 't', 'o', 'k'};
constexpr uint32_t kVersion = 2;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t token_bytes = 0;
  uint64_t tokens = 0, vocab = 0, documents = 0, hash = 0;
  std::array<uint64_t, 2> reserved{};
};
static_assert(sizeof(Header) == 64 && std::endian::native == std::endian::little);

constexpr uint64_t kHeaderBytes = sizeof(Header);
constexpr uint64_t round_up_to_8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{} is no complete token file: {}", path, what));
}

Header checked_header(const detail::MappedFile& file, const std::string& path) {
  auto size = static_cast<uint64_t>(file.size());
  if (size < kHeaderBytes) fail(path, fmt::format("it has {} bytes; the header alone has {}", size, kHeaderBytes));
  Header h;
  std::memcpy(&h, file.data(), kHeaderBytes);
  if (h.magic != kMagic) fail(path, "it does not begin with \"cleavtok\"; `gpt tokenize` writes such files");
  if (h.version != kVersion) fail(path, fmt::format("its version is {}, not {}; tokenize again", h.version, kVersion));
  if (h.token_bytes != 1 && h.token_bytes != 2 && h.token_bytes != 4)
    fail(path, fmt::format("its tokens should have {} bytes; they may have 1, 2 or 4", h.token_bytes));
  if (h.vocab < 1 || h.vocab > (uint64_t{1} << 32)) fail(path, fmt::format("its vocabulary is {}", h.vocab));
  uint64_t room = size - kHeaderBytes;
  bool fits = h.tokens <= room / h.token_bytes;  // no product below overflows
  uint64_t data = fits ? round_up_to_8(h.tokens * h.token_bytes) : 0;
  fits = fits && data <= room && h.documents <= (room - data) / 8 && data + h.documents * 8 == room;
  if (!fits)
    fail(path, fmt::format("its header promises {} tokens of {} bytes and {} documents, but the file has {} bytes",
                           h.tokens, h.token_bytes, h.documents, size));
  return h;
}

// Copies n tokens of this width and returns the largest.
template <class T>
int64_t widen(const uint8_t* tokens, int64_t n, int64_t* out) {
  T most = 0;
  for (int64_t i = 0; i < n; ++i) {
    T token;
    std::memcpy(&token, tokens + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    most = std::max(most, token);
    out[i] = token;
  }
  return most;
}

}  // namespace

struct TokenFile::Content {
  explicit Content(const std::string& path) : path(path), file(path) {}

  std::string path;
  detail::MappedFile file;
  const uint8_t* tokens = nullptr;
  int64_t size = 0, vocab = 256;
  int token_bytes = 1;
  bool text = false;
  std::span<const uint64_t> documents;

  uint64_t computed_hash() const { return XXH3_64bits(tokens, static_cast<size_t>(size * token_bytes)); }
  int64_t copy(int64_t first, int64_t count, int64_t* out) const {
    const uint8_t* from = tokens + first * token_bytes;
    if (token_bytes == 1) return widen<uint8_t>(from, count, out);
    return token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
  }

  uint64_t header_hash = 0;
  mutable std::once_flag hashed;
  mutable uint64_t text_hash = 0;
};

TokenFile TokenFile::open(const std::string& path) {
  auto content = std::make_shared<Content>(path);
  Header h = checked_header(content->file, path);
  content->tokens = content->file.data() + kHeaderBytes;
  content->size = static_cast<int64_t>(h.tokens);
  content->vocab = static_cast<int64_t>(h.vocab);
  content->token_bytes = static_cast<int>(h.token_bytes);
  content->header_hash = h.hash;
  const uint8_t* documents = content->tokens + round_up_to_8(h.tokens * h.token_bytes);
  content->documents = {reinterpret_cast<const uint64_t*>(documents), h.documents};
  std::span<const uint64_t> starts = content->documents;
  if (!starts.empty() && (starts.front() != 0 || starts.back() > h.tokens || !std::ranges::is_sorted(starts)))
    fail(path, "its documents do not begin at 0 or are not in ascending order");
  return TokenFile(std::move(content));
}

TokenFile TokenFile::text(const std::string& path) {
  auto content = std::make_shared<Content>(path);
  content->text = true;
  content->tokens = content->file.data();
  content->size = content->file.size();
  return TokenFile(std::move(content));
}

bool TokenFile::is_token_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 8> start{};
  return in.read(start.data(), start.size()) && start == kMagic;
}

const std::string& TokenFile::path() const { return content_->path; }
int64_t TokenFile::size() const { return content_->size; }
int64_t TokenFile::vocab() const { return content_->vocab; }
int TokenFile::token_bytes() const { return content_->token_bytes; }
bool TokenFile::is_text() const { return content_->text; }
int64_t TokenFile::documents() const { return static_cast<int64_t>(content_->documents.size()); }

int64_t TokenFile::document_of(int64_t position) const {
  auto starts = content_->documents;
  auto after = std::ranges::upper_bound(starts, static_cast<uint64_t>(position));
  return static_cast<int64_t>(after - starts.begin()) - 1;
}

void TokenFile::read(int64_t first, int64_t count, int64_t* out, int64_t limit) const {
  const Content& c = *content_;
  if (first < 0 || count < 0 || first > c.size || count > c.size - first)
    throw ValueError(
        fmt::format("tokens {} to {} were asked of {}, which has {}", first, first + count, c.path, c.size));
  if (limit == 0) limit = c.vocab;
  c.file.require_unchanged();
  if (c.copy(first, count, out) < limit || count == 0) return;
  const int64_t* bad = std::find_if(out, out + count, [&](int64_t token) { return token >= limit; });
  throw FileError(fmt::format("{} has the token {} at position {}, which is not below the vocabulary of {}", c.path,
                              *bad, first + (bad - out), limit));
}

void TokenFile::will_read(int64_t first, int64_t count) const {
  const Content& c = *content_;
  first = std::clamp<int64_t>(first, 0, c.size);
  count = std::clamp<int64_t>(count, 0, c.size - first);
  c.file.will_need(c.tokens - c.file.data() + first * c.token_bytes, count * c.token_bytes);
}

uint64_t TokenFile::hash() const {
  const Content& c = *content_;
  if (!c.text) return c.header_hash;
  std::call_once(c.hashed, [&] {
    c.file.require_unchanged();
    c.text_hash = c.computed_hash();
  });
  return c.text_hash;
}

void TokenFile::verify() const {
  const Content& c = *content_;
  c.file.require_unchanged();
  if (c.computed_hash() != hash())
    throw FileError(
        fmt::format("{} is damaged: its tokens are not those that were written (XXH3); tokenize again", c.path));
}

struct TokenFileWriter::Hash {
  Hash() { XXH3_64bits_reset(&state); }
  XXH3_state_t state;
};

TokenFileWriter::TokenFileWriter(const std::string& path, int64_t vocab)
    : path_(path), vocab_(vocab), token_bytes_(vocab <= 65536 ? 2 : 4), hash_(std::make_unique<Hash>()) {
  if (vocab < 1 || vocab > (int64_t{1} << 32))
    throw ValueError(fmt::format("a vocabulary of {} tokens; it must be from 1 to 2^32", vocab));
  temporary_ = fmt::format("{}.{}.tmp", path, getpid());
  file_.open(temporary_, std::ios::binary);
  Header none;
  none.magic = {};  // until it is complete
  file_.write(reinterpret_cast<const char*>(&none), kHeaderBytes);
  if (!file_) throw FileError(fmt::format("{} cannot be written", path));
}

TokenFileWriter::~TokenFileWriter() {
  if (temporary_.empty()) return;
  file_.close();
  std::remove(temporary_.c_str());
}

void TokenFileWriter::begin_document() { documents_.push_back(static_cast<uint64_t>(size_)); }

void TokenFileWriter::append(std::span<const uint32_t> tokens) {
  std::vector<char> bytes(tokens.size() * static_cast<size_t>(token_bytes_));
  char* out = bytes.data();
  for (uint32_t token : tokens) {
    if (token >= vocab_)
      throw ValueError(fmt::format("the token {} is not below the vocabulary of {} of {}", token, vocab_, path_));
    std::memcpy(out, &token, static_cast<size_t>(token_bytes_));
    out += token_bytes_;
  }
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file_) throw FileError(fmt::format("{} cannot be written; is the disk full?", path_));
  XXH3_64bits_update(&hash_->state, bytes.data(), bytes.size());
  size_ += static_cast<int64_t>(tokens.size());
}

void TokenFileWriter::commit() {
  uint64_t data = static_cast<uint64_t>(size_) * static_cast<uint64_t>(token_bytes_);
  std::array<char, 8> zeros{};
  file_.write(zeros.data(), static_cast<std::streamsize>(round_up_to_8(data) - data));
  if (!documents_.empty() && documents_.front() != 0) documents_.insert(documents_.begin(), 0);
  file_.write(reinterpret_cast<const char*>(documents_.data()), static_cast<std::streamsize>(documents_.size() * 8));
  Header h{.token_bytes = static_cast<uint32_t>(token_bytes_),
           .tokens = static_cast<uint64_t>(size_),
           .vocab = static_cast<uint64_t>(vocab_),
           .documents = documents_.size(),
           .hash = XXH3_64bits_digest(&hash_->state)};
  file_.seekp(0);
  file_.write(reinterpret_cast<const char*>(&h), kHeaderBytes);
  file_.close();
  if (!file_ || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw FileError(fmt::format("{} cannot be written; is the disk full?", path_));
  temporary_.clear();
}

}  // namespace cleave::nn
