// What gpt trains on: which tokens, which part is held out, in which order.
#include "gpt/data.h"

#include <cleave/core/error.h>
#include <cleave/ops/host.h>

#include <doctest/doctest.h>

#include <filesystem>

#include "apps/temporary_folder.h"

using namespace gpt;
using gpt::test::TemporaryFolder;

namespace {
std::vector<int64_t> tokens(const nn::TokenDataset& data) {
  std::vector<int64_t> out(static_cast<size_t>(data.size()));
  data.read(0, data.size(), out.data());
  return out;
}
Config windows_of(int64_t seq, int64_t vocab = 256) { return {.vocab = vocab, .seq = seq}; }
}  // namespace

TEST_CASE("a folder is read in the order of its paths, and the last 5 % are held out") {
  TemporaryFolder folder;
  folder.write("b/two", std::string(30, '2'));
  folder.write("a", std::string(20, '1'));
  folder.write("b/a/three", std::string(30, '3'));
  folder.write("c", std::string(20, '4'));
  Corpus corpus = open_corpus(folder.path(), windows_of(3));
  CHECK(corpus.train.files() == 4);
  std::vector<int64_t> all = tokens(corpus.train), last = tokens(corpus.held_out);
  CHECK(all.size() == 95);
  all.insert(all.end(), last.begin(), last.end());
  std::string text = std::string(20, '1') + std::string(30, '3') + std::string(30, '2') + std::string(20, '4');
  CHECK(all == std::vector<int64_t>(text.begin(), text.end()));
}

TEST_CASE("missing, empty, short and foreign data are errors") {
  TemporaryFolder folder;
  CHECK_THROWS_AS(open_corpus(folder.path("none"), windows_of(3)), cleave::FileError);
  CHECK_THROWS_AS(open_corpus(folder.write("empty", ""), windows_of(3)), cleave::FileError);
  std::string path = folder.write("text", std::string(100, 'a'));
  CHECK_NOTHROW(open_corpus(path, windows_of(4)));
  CHECK_THROWS_WITH_AS(open_corpus(path, windows_of(5)), doctest::Contains("window of 6"), cleave::ValueError);
}

TEST_CASE("training goes by seed and step alone; what is held out is read once, in order") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text.push_back(static_cast<char>('a' + i % 23));
  Corpus corpus = open_corpus(folder.write("text", text), windows_of(4));
  TrainOptions o{.model = windows_of(4), .step = {.batch = 6, .accumulate = 4}, .seed = 5};
  auto first = [&] {
    nn::TokenBatch batch = *training_loader(corpus, o, {}).next();
    CHECK(batch.parts.size() == 4);
    CHECK(batch.tokens == 24);
    return batch.windows;
  };
  auto one = first();
  CHECK(one == first());
  o.seed = 6;
  CHECK(one != first());
  nn::TokenLoader held_out = held_out_loader(corpus, o, {});
  int64_t counted = 0, windows = 0;
  while (auto batch = held_out.next()) {
    counted += batch->tokens;
    for (int64_t w : batch->windows) windows += w >= 0;
  }
  CHECK(windows == held_out.epoch_samples());
  CHECK(counted == corpus.held_out.size() - 1);
}

TEST_CASE("the default text is there, and is a folder of headers") {
  std::string path = default_data();
  CHECK(std::filesystem::exists(path + "/vector"));
}
