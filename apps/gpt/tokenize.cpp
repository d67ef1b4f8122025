#include "gpt/tokenize.h"

#include <cleave/core/error.h>
#include <cleave/nn/data/token_dataset.h>
#include <cleave/nn/data/token_file.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "gpt/bpe_files.h"
#include "gpt/bpe_train.h"

namespace gpt {

namespace fs = std::filesystem;
using cleave::FileError;
using cleave::ValueError;

namespace {

// f(0), ..., f(n - 1) on several threads; rethrows the error of the smallest i that has one.
void on_threads(int64_t threads, size_t n, const std::function<void(size_t)>& f) {
  std::vector<std::exception_ptr> errors(n);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < n;) try {
        f(i);
      } catch (...) { errors[i] = std::current_exception(); }
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < std::min(threads, static_cast<int64_t>(n)); ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::string text(in ? static_cast<size_t>(std::max<std::streamoff>(0, in.tellg())) : 0, '\0');
  in.seekg(0);
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())))
    throw FileError(fmt::format("{} cannot be read", path));
  return text;
}

// What there is to tokenize: not what a run before has written among it.
std::vector<std::string> texts_of(const TokenizeOptions& o) {
  std::vector<std::string> files;
  for (std::string& file : cleave::nn::files_below(o.data)) {
    std::error_code none;
    if (fs::equivalent(file, o.out, none) || fs::equivalent(file, tokenizer_beside(o.out), none)) continue;
    if (cleave::nn::TokenFile::is_token_file(file))
      throw FileError(fmt::format("{} is a token file already; leave it out of {}", file, o.data));
    files.push_back(std::move(file));
  }
  return files;
}

// f(text of a file); its errors name the file.
template <class F>
void with_text(const std::string& file, F&& f) {
  std::string text = read_file(file);
  try {
    f(text);
  } catch (const ValueError& e) { throw ValueError(fmt::format("{}: {}", file, e.what())); }
}

Bpe learned(const std::vector<std::string>& files, const TokenizeOptions& o) {
  BpeTrainOptions options{.vocab_size = o.vocab_size, .special = {o.end}};
  Pretokenizer pretokenizer(options.patterns);
  PieceCounts total;
  std::mutex mutex;
  on_threads(o.threads, files.size(), [&](size_t i) {
    PieceCounts counts;
    with_text(files[i], [&](const std::string& text) { count_pieces(pretokenizer, text, counts); });
    std::lock_guard lock(mutex);
    for (const auto& [piece, count] : counts) total[piece] += count;
  });
  return Bpe(train_bpe(total, options));
}

// A file for each thread; more of small ones.
size_t files_at_once(const std::vector<std::string>& files, size_t first, size_t threads) {
  constexpr uintmax_t kEnough = uintmax_t{64} << 20;
  uintmax_t bytes = 0;
  size_t n = 0;
  for (; first + n < files.size() && (n < threads || bytes < kEnough); ++n) {
    std::error_code none;
    if (uintmax_t size = fs::file_size(files[first + n], none); !none) bytes += size;
  }
  return n;
}

// Encodes some files at a time, each thread its own, and writes them in order.
void write_documents(const std::vector<std::string>& files, const Bpe& bpe, const TokenizeOptions& o,
                     TokenizeSummary& summary) {
  int64_t end = bpe.added_token(o.end);
  if (end < 0)
    throw ValueError(
        fmt::format("the tokenizer {} has no token {}, which should stand after each document; name "
                    "another one with --end",
                    o.tokenizer, o.end));
  cleave::nn::TokenFileWriter writer(o.out, bpe.vocab_size());
  for (size_t first = 0, count = 0; first < files.size(); first += count) {
    count = files_at_once(files, first, static_cast<size_t>(o.threads));
    std::vector<std::vector<uint32_t>> tokens(count);
    std::vector<size_t> bytes(count);
    on_threads(o.threads, count, [&](size_t i) {
      with_text(files[first + i], [&](const std::string& text) {
        bytes[i] = text.size();
        tokens[i] = bpe.encode(text, false);
      });
      tokens[i].push_back(static_cast<uint32_t>(end));
    });
    for (size_t i = 0; i < count; ++i) {
      writer.begin_document();
      writer.append(tokens[i]);
      summary.bytes += static_cast<int64_t>(bytes[i]);
    }
  }
  if (summary.bytes == 0) throw FileError(fmt::format("{} holds no text", o.data));
  summary.tokens = writer.size();
  writer.commit();
}

}  // namespace

std::string to_string(const TokenizeSummary& s) {
  return fmt::format("{} files, {} bytes: {} tokens ({:.2f} bytes each) of a vocabulary of {}", s.files, s.bytes,
                     s.tokens, static_cast<double>(s.bytes) / static_cast<double>(s.tokens), s.vocab);
}

std::string tokenizer_beside(const std::string& token_file) {
  return fs::path(token_file).replace_extension(".json").string();
}

TokenizeSummary tokenize(const TokenizeOptions& options) {
  TokenizeOptions o = options;
  if (o.threads <= 0) o.threads = std::max(1u, std::thread::hardware_concurrency());
  TokenizeSummary summary{.tokenizer = tokenizer_beside(o.out)};
  if (o.out == summary.tokenizer)
    throw ValueError(fmt::format("{} would be the tokenizer and the tokens; name the tokens *.bin", o.out));
  std::vector<std::string> files = texts_of(o);
  Bpe bpe = o.tokenizer.empty() ? learned(files, o) : read_tokenizer(o.tokenizer);
  summary.files = static_cast<int64_t>(files.size());
  summary.vocab = bpe.vocab_size();
  write_documents(files, bpe, o, summary);
  write_tokenizer(bpe, summary.tokenizer);
  return summary;
}

}  // namespace gpt
