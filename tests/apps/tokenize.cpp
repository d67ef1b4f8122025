// gpt tokenize: the token file and the tokenizer that it writes.
#include "gpt/tokenize.h"

#include <cleave/core/error.h>
#include <cleave/nn/data/token_dataset.h>

#include <doctest/doctest.h>

#include "apps/bpe_goldens.h"
#include "apps/temporary_folder.h"
#include "gpt/bpe_files.h"
#include "gpt/options.h"

using namespace gpt;
using cleave::FileError;
using cleave::ValueError;
using cleave::nn::TokenDataset;
using gpt::test::bpe_golden;
using gpt::test::bpe_golden_path;
using gpt::test::TemporaryFolder;

namespace {

std::vector<uint32_t> tokens_of(const std::string& path) {
  TokenDataset data(path);
  std::vector<int64_t> ids(static_cast<size_t>(data.size()));
  data.read(0, data.size(), ids.data());
  return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("documents become their tokens, each followed by the end of text") {
  TemporaryFolder folder;
  std::vector<std::string> texts = {bpe_golden("corpus.txt"), "", "one \xff two", bpe_golden("text.txt")};
  for (size_t i = 0; i < texts.size(); ++i) folder.write("d/" + std::to_string(i), texts[i]);
  TokenizeSummary s =
      tokenize({.data = folder.path("d"), .out = folder.path("t.bin"), .tokenizer = bpe_golden_path("tokenizer.json")});
  Bpe bpe = read_tokenizer(folder.path("t.json"));
  CHECK(s.tokenizer == folder.path("t.json"));
  CHECK(tokenizer_beside(folder.path("t.bin")) == s.tokenizer);
  CHECK(s.files == 4);
  CHECK(s.vocab == 600);
  std::vector<uint32_t> expected;
  size_t bytes = 0;
  for (const std::string& text : texts) {
    std::vector<uint32_t> ids = bpe.encode(text, false);
    expected.insert(expected.end(), ids.begin(), ids.end());
    expected.push_back(0);
    bytes += text.size();
  }
  CHECK(s.bytes == static_cast<int64_t>(bytes));
  CHECK(s.tokens == static_cast<int64_t>(expected.size()));
  CHECK(tokens_of(folder.path("t.bin")) == expected);
  TokenDataset data(folder.path("t.bin"));
  CHECK(data.vocab() == 600);
  CHECK(data.locate(data.size() - 1).document == 3);
  CHECK(data.locate(0).document == 0);
  std::filesystem::remove_all(folder.path("d"));
  CHECK(TokenDataset(folder.path()).size() == data.size());  // the tokenizer beside it is none of the data
}

TEST_CASE("a vocabulary is learned from all files, whatever the number of threads") {
  TemporaryFolder folder;
  std::string corpus = bpe_golden("corpus.txt");
  for (size_t i = 0; i * 1000 < corpus.size(); ++i)
    folder.write("d/" + std::to_string(100 + i), corpus.substr(i * 1000, 1000));
  for (int64_t threads : {1, 2, 5})
    tokenize({.data = folder.path("d"),
              .out = folder.path(std::to_string(threads) + ".bin"),
              .vocab_size = 400,
              .threads = threads});
  CHECK(folder.read("1.bin") == folder.read("2.bin"));
  CHECK(folder.read("1.bin") == folder.read("5.bin"));
  CHECK(folder.read("1.json") == folder.read("5.json"));
  Bpe bpe = read_tokenizer(folder.path("1.json"));
  CHECK(bpe.vocab_size() == 400);
  std::string text = bpe.decode(tokens_of(folder.path("1.bin")));
  for (size_t at; (at = text.find(kEndOfText)) != std::string::npos;) text.erase(at, std::string(kEndOfText).size());
  for (size_t at; (at = corpus.find(kEndOfText)) != std::string::npos;)
    corpus.erase(at, std::string(kEndOfText).size());
  CHECK(text == corpus);
}

TEST_CASE("what cannot be tokenized is an error, and no file is left") {
  TemporaryFolder folder;
  folder.write("d/a", "some text");
  CHECK_THROWS_WITH_AS(tokenize({.data = folder.path("none"), .out = folder.path("t.bin")}),
                       doctest::Contains("does not exist"), FileError);
  CHECK_THROWS_WITH_AS(tokenize({.data = folder.path("d"), .out = folder.path("t.json")}), doctest::Contains("*.bin"),
                       ValueError);
  CHECK_THROWS_AS(tokenize({.data = folder.path("d"), .out = folder.path("no/such/t.bin")}), FileError);
  CHECK_THROWS_AS(tokenize({.data = folder.path("d"), .out = folder.path("t.bin"), .vocab_size = 256}), ValueError);
  CHECK_THROWS_WITH_AS(tokenize({.data = folder.write("empty", ""), .out = folder.path("t.bin")}),
                       doctest::Contains("no text"), FileError);
  BpeModel model = read_tokenizer(bpe_golden_path("tokenizer.json")).model();
  model.added.clear();
  write_tokenizer(Bpe(model), folder.path("x.json"));
  CHECK_THROWS_WITH_AS(
      tokenize({.data = folder.path("d"), .out = folder.path("t.bin"), .tokenizer = folder.path("x.json")}),
      doctest::Contains(kEndOfText), ValueError);
  CHECK_FALSE(std::filesystem::exists(folder.path("t.bin")));
}

TEST_CASE("what a run before wrote among the texts is none of them; other token files are an error") {
  TemporaryFolder folder;
  folder.write("d/a", "some text, some text");
  TokenizeOptions o{.data = folder.path("d"), .out = folder.path("d/t.bin"), .vocab_size = 260};
  tokenize(o);
  std::string first = folder.read("d/t.bin");
  tokenize(o);
  CHECK(folder.read("d/t.bin") == first);
  o.out = folder.path("t.bin");
  CHECK_THROWS_WITH_AS(tokenize(o), doctest::Contains("d/t.bin is a token file already"), FileError);
}

TEST_CASE("another token may stand after documents") {
  TemporaryFolder folder;
  folder.write("d", "a");
  tokenize({.data = folder.path("d"), .out = folder.path("t.bin"), .vocab_size = 257, .end = "</s>"});
  Bpe bpe = read_tokenizer(folder.path("t.json"));
  CHECK(bpe.decode(tokens_of(folder.path("t.bin"))) == "a</s>");
  CHECK_THROWS_WITH_AS(
      tokenize({.data = folder.path("d"), .out = folder.path("u.bin"), .tokenizer = folder.path("t.json")}),
      doctest::Contains("--end"), ValueError);
}

TEST_CASE("an error in a text names its file") {
  TemporaryFolder folder;
  folder.write("d/a", "ab");
  folder.write("d/b", "ba q");
  BpeModel model = read_tokenizer(bpe_golden_path("tokenizer.json")).model();
  auto q = std::find(model.tokens.begin(), model.tokens.end(), "q");
  std::erase_if(model.merges, [&](const auto& m) {
    return (model.tokens[m.first] + model.tokens[m.second]).find('q') != std::string::npos;
  });
  q->clear();
  write_tokenizer(Bpe(model), folder.path("x.json"));
  CHECK_THROWS_WITH_AS(
      tokenize({.data = folder.path("d"), .out = folder.path("t.bin"), .tokenizer = folder.path("x.json")}),
      doctest::Contains("d/b: the vocabulary lacks the byte 113"), ValueError);
}

TEST_CASE("the command line") {
  auto parsed = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"gpt", "tokenize"});
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    return parse_command_line(static_cast<int>(words.size()), argv.data());
  };
  auto result = parsed({"--data", "folder", "--out", "t.bin", "--train", "1000", "--threads", "3"});
  const auto* o = std::get_if<TokenizeOptions>(std::get_if<Options>(&result));
  REQUIRE(o);
  CHECK(o->data == "folder");
  CHECK(o->out == "t.bin");
  CHECK(o->vocab_size == 1000);
  CHECK(o->threads == 3);
  CHECK(o->tokenizer.empty());
  CHECK_THROWS_AS(parsed({"--data", "x", "--out", "y", "--threads", "-1"}), ValueError);
}
