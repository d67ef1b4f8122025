#include "gpt/data.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "gpt/tokenize.h"

namespace gpt {

namespace fs = std::filesystem;

namespace {
constexpr double kHeldOut = 0.05;
constexpr int64_t kHeldOutTokens = 128 * 1024;
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
    throw cleave::FileError(
        fmt::format("there are no C++ headers in {} to train on; give a text with --data PATH", root.string()));
  return best;
}

void fit_to_data(TrainOptions& o, const std::string& path) {
  nn::TokenDataset data(path);
  if (data.is_text()) return;
  if (!o.vocab_given) o.model.vocab = data.vocab();
  if (std::string beside = tokenizer_beside(path); fs::is_regular_file(beside))
    o.model.tokenizer = fs::absolute(beside).string();
}

Corpus open_corpus(const std::string& path, const Config& model) {
  nn::TokenDataset all(path, model.vocab);
  auto [train, held_out] = all.split(kHeldOut);
  if (std::min(train.size(), held_out.size()) < model.seq + 1)
    throw cleave::ValueError(fmt::format(
        "--data: {} has {} tokens, of which the last 5 % are held out; both parts must have a window of {} tokens",
        path, all.size(), model.seq + 1));
  return {train, held_out};
}

nn::TokenLoader training_loader(const Corpus& corpus, const TrainOptions& o, cleave::dist::Layout layout) {
  return {corpus.train,
          {.batch = o.step.batch,
           .seq = o.model.seq,
           .seed = o.seed,
           .drop_last = false,
           .micro_batches = o.step.accumulate,
           .layout = layout}};
}

nn::TokenLoader held_out_loader(const Corpus& corpus, const TrainOptions& o, cleave::dist::Layout layout) {
  return {corpus.held_out,
          {.batch = o.step.batch,
           .seq = o.model.seq,
           .shuffle = false,
           .drop_last = false,
           .epochs = 1,
           .limit = std::max<int64_t>(1, kHeldOutTokens / o.model.seq),
           .micro_batches = o.step.accumulate,
           .layout = layout}};
}

}  // namespace gpt
