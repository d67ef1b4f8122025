#include "gpt/data.h"

#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/ops/creation.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace gpt {

namespace fs = std::filesystem;
using cleave::FileError;
using cleave::Tensor;

namespace {

// The streams of random numbers that a seed gives are told apart by their call numbers; those of ops count from 0.
constexpr uint64_t kBatchCalls = uint64_t{1} << 62;

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void append(const fs::path& file, std::vector<uint8_t>& bytes) {
  std::ifstream in(file, std::ios::binary);
  std::vector<uint8_t> buffer(1 << 16);
  while (in.good()) {
    in.read(reinterpret_cast<char*>(buffer.data()), static_cast<std::streamsize>(buffer.size()));
    bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + in.gcount());
  }
  if (!in.eof()) throw FileError(fmt::format("--data: {} cannot be read", file.string()));
}

std::vector<uint8_t> read_all(const std::string& path, int64_t& files) {
  std::vector<uint8_t> bytes;
  try {
    if (!fs::exists(path)) throw FileError(fmt::format("--data: {} does not exist", path));
    if (!fs::is_directory(path) && !fs::is_regular_file(path))
      throw FileError(fmt::format("--data: {} is neither a file nor a folder", path));
    std::vector<fs::path> found = files_of(path);
    for (const auto& file : found) append(file, bytes);
    files = static_cast<int64_t>(found.size());
  } catch (const fs::filesystem_error& e) { throw FileError(fmt::format("--data: {}", e.what())); }
  if (bytes.empty())
    throw FileError(fmt::format("--data: {} holds no bytes; give a file or folder with text to train on", path));
  return bytes;
}

}  // namespace

std::string default_data() {
  const fs::path root = "/usr/include/c++";
  std::string best;
  int highest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    std::string name = entry.path().filename().string();
    int version = 0;
    auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), version);
    if (bad != std::errc{} || !entry.is_directory() || version <= highest) continue;
    highest = version;
    best = entry.path().string();
  }
  if (best.empty())
    throw FileError(
        fmt::format("there are no C++ headers in {} to train on; give a text with --data PATH", root.string()));
  return best;
}

Corpus load_corpus(const std::string& path, int64_t window, int64_t vocab) {
  Corpus corpus;
  corpus.source = path;
  std::vector<uint8_t> bytes = read_all(path, corpus.files);
  if (int top = *std::max_element(bytes.begin(), bytes.end()); top >= vocab)
    throw cleave::ValueError(
        fmt::format("--data: {} has the byte {}, which is no token of --vocab {}", path, top, vocab));
  auto held_out = static_cast<int64_t>(bytes.size()) / 20;
  corpus.held_out.assign(bytes.end() - held_out, bytes.end());
  bytes.resize(bytes.size() - static_cast<size_t>(held_out));
  corpus.train = std::move(bytes);
  if (std::min(held_out, static_cast<int64_t>(corpus.train.size())) < window)
    throw cleave::ValueError(fmt::format(
        "--data: {} has {} bytes, of which the last 5 % are held out; both parts must have a window of {} bytes", path,
        corpus.train.size() + corpus.held_out.size(), window));
  return corpus;
}

Batch windows(const std::vector<uint8_t>& text, const std::vector<int64_t>& starts, int64_t seq) {
  std::vector<int64_t> ids, targets;
  for (int64_t start : starts)
    for (int64_t i = start; i < start + seq; ++i) {
      ids.push_back(text[static_cast<size_t>(i)]);
      targets.push_back(text[static_cast<size_t>(i) + 1]);
    }
  cleave::Shape shape{static_cast<int64_t>(starts.size()), seq};
  return {cleave::tensor(ids, shape), cleave::tensor(targets, shape)};
}

Batch random_batch(const std::vector<uint8_t>& text, int64_t batch, int64_t seq, uint64_t seed, int64_t step) {
  auto choices = static_cast<uint64_t>(static_cast<int64_t>(text.size()) - seq);
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < batch; ++i) {
    auto key = cleave::detail::RandomKey{seed, kBatchCalls + static_cast<uint64_t>(step)};
    auto random = cleave::detail::philox(key, static_cast<uint64_t>(i));
    uint64_t number = (uint64_t{random.v[0]} << 32) | random.v[1];
    starts.push_back(static_cast<int64_t>(number % choices));
  }
  return windows(text, starts, seq);
}

std::vector<int64_t> even_starts(int64_t text_size, int64_t count, int64_t seq) {
  int64_t last = text_size - seq - 1;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < count; ++i) starts.push_back(count == 1 ? 0 : i * last / (count - 1));
  return starts;
}

uint64_t hash_of(const Corpus& corpus) {
  uint64_t h = 14695981039346656037ull;
  for (const auto* part : {&corpus.train, &corpus.held_out})
    for (uint8_t byte : *part) h = (h ^ byte) * 1099511628211ull;
  return h;
}

}  // namespace gpt
