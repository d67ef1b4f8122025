#include <cleave/core/error.h>
#include <cleave/nn/data/token_dataset.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

namespace cleave::nn {

namespace fs = std::filesystem;

struct TokenDataset::Content {
  std::string source;
  std::vector<TokenFile> files;
  std::vector<int64_t> starts;  // of each file in the whole
  int64_t size = 0, vocab = 0;

  size_t file_of(int64_t position) const {
    auto after = std::upper_bound(starts.begin(), starts.end(), position);
    return static_cast<size_t>(after - starts.begin()) - 1;
  }
  void read(int64_t first, int64_t count, int64_t* out) const {
    for (size_t f = count > 0 ? file_of(first) : files.size(); count > 0; ++f) {
      int64_t offset = first - starts[f], taken = std::min(count, files[f].size() - offset);
      files[f].read(offset, taken, out, std::min(vocab, files[f].vocab()));
      first += taken;
      count -= taken;
      out += taken;
    }
  }
};

namespace {

bool is_token_file(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".tokens" || TokenFile::is_token_file(path.string());
}

// Tokenizers lie beside token files.
std::vector<fs::path> without_tokenizers(const std::vector<std::string>& files) {
  bool tokens = std::any_of(files.begin(), files.end(), is_token_file);
  std::vector<fs::path> out;
  for (const fs::path file : files)
    if (!tokens || file.extension() != ".json") out.push_back(file);
  return out;
}

uint64_t mixed(uint64_t hash, uint64_t word) {  // FNV-1a over the word's bytes
  for (int i = 0; i < 8; ++i, word >>= 8) hash = (hash ^ (word & 0xff)) * 1099511628211ull;
  return hash;
}

}  // namespace

std::vector<std::string> files_below(const std::string& path) {
  std::vector<fs::path> files;
  try {
    if (!fs::exists(path)) throw FileError(fmt::format("{} does not exist", path));
    if (fs::is_regular_file(path)) return {path};
    if (!fs::is_directory(path)) throw FileError(fmt::format("{} is neither a file nor a folder", path));
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
  } catch (const fs::filesystem_error& e) { throw FileError(fmt::format("{} cannot be read: {}", path, e.what())); }
  std::sort(files.begin(), files.end());
  return {files.begin(), files.end()};
}

std::string to_string(const TokenLocation& l) {
  std::string text = fmt::format("{}, token {}", l.path, l.offset);
  return l.document < 0 ? text : fmt::format("{}, document {}", text, l.document);
}

TokenDataset::TokenDataset(const std::string& path, int64_t vocab) {
  auto content = std::make_shared<Content>();
  content->source = path;
  int64_t largest = 0;
  for (const fs::path& file : without_tokenizers(files_below(path))) {
    TokenFile opened = is_token_file(file) ? TokenFile::open(file.string()) : TokenFile::text(file.string());
    if (opened.size() == 0) continue;
    content->files.push_back(opened);
    if (opened.is_text() != content->files.front().is_text())
      throw FileError(fmt::format("{} mixes text and token files: {} and {}; tokenize the text first", path,
                                  content->files.front().path(), opened.path()));
    content->starts.push_back(content->size);
    content->size += opened.size();
    largest = std::max(largest, opened.vocab());
  }
  if (content->size == 0)
    throw FileError(fmt::format("{} holds no tokens; give a file or folder with text or tokens", path));
  content->vocab = vocab > 0 ? std::min(vocab, largest) : largest;
  last_ = content->size;
  content_ = std::move(content);
}

int64_t TokenDataset::vocab() const { return content_->vocab; }
const std::string& TokenDataset::source() const { return content_->source; }
int64_t TokenDataset::files() const { return static_cast<int64_t>(content_->files.size()); }
bool TokenDataset::is_text() const { return content_->files.front().is_text(); }

TokenDataset TokenDataset::range(int64_t first, int64_t last) const {
  if (first < 0 || first > last || last > size())
    throw ValueError(fmt::format("tokens {} to {} of {}, which has {}", first, last, source(), size()));
  return {content_, first_ + first, first_ + last};
}

std::pair<TokenDataset, TokenDataset> TokenDataset::split(double fraction) const {
  if (!(fraction >= 0 && fraction <= 1))
    throw ValueError(fmt::format("a part of {} cannot be held out; it must be from 0 to 1", fraction));
  auto held_out = static_cast<int64_t>(std::floor(fraction * static_cast<double>(size())));
  return {range(0, size() - held_out), range(size() - held_out, size())};
}

void TokenDataset::read(int64_t first, int64_t count, int64_t* out) const {
  if (first < 0 || count < 0 || first > size() || count > size() - first)
    throw ValueError(fmt::format("tokens {} to {} of {}, which has {}", first, first + count, source(), size()));
  content_->read(first_ + first, count, out);
}

void TokenDataset::check() const {
  std::vector<int64_t> tokens(size_t{1} << 16);
  for (int64_t at = 0; at < size(); at += static_cast<int64_t>(tokens.size()))
    read(at, std::min(static_cast<int64_t>(tokens.size()), size() - at), tokens.data());
}

TokenLocation TokenDataset::locate(int64_t position) const {
  if (position < 0 || position >= size())
    throw ValueError(fmt::format("token {} of {}, which has {}", position, source(), size()));
  size_t f = content_->file_of(first_ + position);
  int64_t offset = first_ + position - content_->starts[f];
  return {content_->files[f].path(), offset, content_->files[f].document_of(offset)};
}

uint64_t TokenDataset::fingerprint() const {
  constexpr int64_t kPlaces = 256, kTokens = 64;
  uint64_t hash = mixed(mixed(14695981039346656037ull, static_cast<uint64_t>(size())),  // FNV's offset
                        static_cast<uint64_t>(vocab()));
  std::vector<int64_t> tokens(kTokens);
  int64_t count = std::min(size(), kTokens), last = size() - count;
  for (int64_t place = 0, before = -1; place < kPlaces; ++place) {
    auto at = static_cast<int64_t>(static_cast<double>(last) * static_cast<double>(place) / (kPlaces - 1));
    if (at == before) continue;
    before = std::min(at, last);
    read(before, count, tokens.data());
    for (int64_t i = 0; i < count; ++i) hash = mixed(hash, static_cast<uint64_t>(tokens[static_cast<size_t>(i)]));
  }
  return hash;
}

}  // namespace cleave::nn
