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
TrainOptions on(const std::string& path, int64_t seq) { return {.model = {.seq = seq}, .data = path}; }
Corpus open(TrainOptions o) { return open_corpus(o); }

std::string write_tokens(const TemporaryFolder& folder, const std::string& name, int64_t vocab, uint32_t last = 1) {
  folder.write(name, "");
  nn::TokenFileWriter writer(folder.path(name), vocab);
  std::vector<uint32_t> ids(200, 1);
  ids.back() = last;
  writer.append(ids);
  writer.commit();
  return folder.path(name);
}
}  // namespace

TEST_CASE("a folder is read in the order of its paths, and the last 5 % are held out") {
  TemporaryFolder folder;
  folder.write("b/two", std::string(30, '2'));
  folder.write("a", std::string(20, '1'));
  folder.write("b/a/three", std::string(30, '3'));
  folder.write("c", std::string(20, '4'));
  Corpus corpus = open(on(folder.path(), 3));
  CHECK(corpus.train.files() == 4);
  std::vector<int64_t> all = tokens(corpus.train), last = tokens(corpus.held_out);
  CHECK(all.size() == 95);
  all.insert(all.end(), last.begin(), last.end());
  std::string text = std::string(20, '1') + std::string(30, '3') + std::string(30, '2') + std::string(20, '4');
  CHECK(all == std::vector<int64_t>(text.begin(), text.end()));
}

TEST_CASE("missing, empty, short and foreign data are errors") {
  TemporaryFolder folder;
  CHECK_THROWS_AS(open(on(folder.path("none"), 3)), cleave::FileError);
  CHECK_THROWS_AS(open(on(folder.write("empty", ""), 3)), cleave::FileError);
  std::string path = folder.write("text", std::string(100, 'a'));
  CHECK_NOTHROW(open(on(path, 4)));
  CHECK_THROWS_WITH_AS(open(on(path, 5)), doctest::Contains("window of 6"), cleave::ValueError);
}

TEST_CASE("token files say how many tokens a model has, and the tokenizer beside the first is its own") {
  TemporaryFolder folder;
  write_tokens(folder, "d/a.bin", 300);
  write_tokens(folder, "d/b.bin", 300);
  TrainOptions o = on(folder.path("d"), 4);
  CHECK(open_corpus(o).train.vocab() == 300);
  CHECK(o.model.vocab == 300);
  CHECK(o.model.tokenizer.empty());
  folder.write("d/a.json", "{}");
  open_corpus(o);
  CHECK(o.model.tokenizer == folder.path("d/a.json"));
  o.vocab_given = true;
  o.model.vocab = 512;
  CHECK(open_corpus(o).train.vocab() == 300);
  CHECK(o.model.vocab == 512);
}

TEST_CASE("tokens that the model lacks are found before training, also where they are held out") {
  TemporaryFolder folder;
  TrainOptions o = on(write_tokens(folder, "t.bin", 300, 7), 4);
  o.vocab_given = true;
  o.model.vocab = 7;
  CHECK_THROWS_WITH_AS(open(o), doctest::Contains("t.bin has the token 7 at position 199"), cleave::FileError);
  o.model.vocab = 8;
  CHECK(open(o).train.vocab() == 8);
}

TEST_CASE("damage is found if it is looked for") {
  TemporaryFolder folder;
  std::string path = write_tokens(folder, "t.bin", 300), bytes = folder.read("t.bin");
  bytes[64 + 2 * 50] = 2;
  TrainOptions o = on(folder.write("t.bin", bytes), 4);
  CHECK_NOTHROW(open(o));
  o.check_data = true;
  CHECK_THROWS_WITH_AS(open(o), doctest::Contains("t.bin is damaged"), cleave::FileError);
}

TEST_CASE("training goes by seed and step alone; what is held out is read once, in order") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text.push_back(static_cast<char>('a' + i % 23));
  TrainOptions o = on(folder.write("text", text), 4);
  o.step = {.batch = 6, .accumulate = 4};
  o.seed = 5;
  Corpus corpus = open(o);
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
