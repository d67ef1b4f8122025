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

Corpus open_corpus(TrainOptions& o) {
  nn::TokenDataset all(o.data.empty() ? default_data() : o.data);
  if (!all.is_text()) {
    if (!o.vocab_given) o.model.vocab = all.vocab();
    if (std::string beside = tokenizer_beside(all.locate(0).path); fs::is_regular_file(beside))
      o.model.tokenizer = fs::absolute(beside).string();
  }
  if (o.check_data) all.verify();
  bool larger = o.model.vocab < all.vocab();
  all = all.bounded(o.model.vocab);
  if (o.check_data || larger) all.check();
  auto [train, held_out] = all.split(kHeldOut);
  if (std::min(train.size(), held_out.size()) < o.model.seq + 1)
    throw cleave::ValueError(fmt::format(
        "--data: {} has {} tokens, of which the last 5 % are held out; both parts must have a window of {} tokens: "
        "give more data or a smaller --seq",
        all.source(), all.size(), o.model.seq + 1));
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
