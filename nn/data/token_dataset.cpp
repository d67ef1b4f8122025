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
  int64_t size = 0;

  size_t file_of(int64_t position) const {
    auto after = std::upper_bound(starts.begin(), starts.end(), position);
    return static_cast<size_t>(after - starts.begin()) - 1;
  }
  // Calls f(file, its first token, how many) for the parts of a range.
  template <class F>
  void for_files(int64_t first, int64_t count, F&& f) const {
    for (size_t i = count > 0 ? file_of(first) : files.size(); count > 0; ++i) {
      int64_t offset = first - starts[i], taken = std::min(count, files[i].size() - offset);
      f(files[i], offset, taken);
      first += taken;
      count -= taken;
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

// `above`: the folders that this one is in, by their real paths.
void collect_files(const fs::path& folder, std::vector<fs::path> above, std::vector<fs::path>& files) {
  above.push_back(fs::canonical(folder));
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    if (!entry.exists()) throw FileError(fmt::format("{} is a link to nothing", entry.path().string()));
    if (entry.is_regular_file()) files.push_back(entry.path());
    if (!entry.is_directory()) continue;
    if (std::find(above.begin(), above.end(), fs::canonical(entry.path())) != above.end())
      throw FileError(fmt::format("{} is a link to a folder that it is in", entry.path().string()));
    collect_files(entry.path(), above, files);
  }
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
    collect_files(path, {}, files);
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
  for (const fs::path& file : without_tokenizers(files_below(path))) {
    TokenFile opened = is_token_file(file) ? TokenFile::open(file.string()) : TokenFile::text(file.string());
    if (opened.size() == 0) continue;
    content->files.push_back(opened);
    const TokenFile& first = content->files.front();
    if (opened.is_text() != first.is_text())
      throw FileError(fmt::format("{} mixes text and token files: {} and {}; tokenize the text first", path,
                                  first.path(), opened.path()));
    if (opened.vocab() != first.vocab())
      throw FileError(fmt::format("{} has tokens of several tokenizers: {} has a vocabulary of {}, {} one of {}", path,
                                  first.path(), first.vocab(), opened.path(), opened.vocab()));
    content->starts.push_back(content->size);
    content->size += opened.size();
  }
  if (content->size == 0)
    throw FileError(fmt::format("{} holds no tokens; give a file or folder with text or tokens", path));
  int64_t own = content->files.front().vocab();
  vocab_ = vocab > 0 ? std::min(vocab, own) : own;
  last_ = content->size;
  content_ = std::move(content);
}

TokenDataset TokenDataset::bounded(int64_t vocab) const {
  if (vocab < 1) throw ValueError(fmt::format("a vocabulary of {} for {}; it must be at least 1", vocab, source()));
  return {content_, first_, last_, std::min(vocab, vocab_)};
}

int64_t TokenDataset::vocab() const { return vocab_; }
const std::string& TokenDataset::source() const { return content_->source; }
int64_t TokenDataset::files() const { return static_cast<int64_t>(content_->files.size()); }
bool TokenDataset::is_text() const { return content_->files.front().is_text(); }

TokenDataset TokenDataset::range(int64_t first, int64_t last) const {
  if (first < 0 || first > last || last > size())
    throw ValueError(fmt::format("tokens {} to {} of {}, which has {}", first, last, source(), size()));
  return {content_, first_ + first, first_ + last, vocab_};
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
  content_->for_files(first_ + first, count, [&](const TokenFile& file, int64_t offset, int64_t taken) {
    file.read(offset, taken, out, vocab_);
    out += taken;
  });
}

void TokenDataset::will_read(int64_t first, int64_t count) const {
  first = std::clamp<int64_t>(first, 0, size());
  count = std::clamp<int64_t>(count, 0, size() - first);
  content_->for_files(first_ + first, count,
                      [](const TokenFile& file, int64_t offset, int64_t taken) { file.will_read(offset, taken); });
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

void TokenDataset::verify() const {
  for (const TokenFile& file : content_->files) file.verify();
}

uint64_t TokenDataset::fingerprint() const {
  uint64_t hash = 14695981039346656037ull;  // FNV's offset
  auto add = [&](auto number) { hash = mixed(hash, static_cast<uint64_t>(number)); };
  for (int64_t number : {first_, last_, vocab_, files()}) add(number);
  for (const TokenFile& file : content_->files) {
    add(file.size());
    add(file.token_bytes());
    add(file.hash());
  }
  return hash;
}

}  // namespace cleave::nn
