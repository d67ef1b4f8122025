// Byte-level BPE: the tokens of Hugging Face's tokenizers, any bytes and back, and what is learned from text.
#include "gpt/bpe.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <nlohmann/json.hpp>

#include "apps/bpe_goldens.h"
#include "gpt/bpe_files.h"
#include "gpt/bpe_train.h"

using namespace gpt;
using cleave::ValueError;
using gpt::test::bpe_golden;
using gpt::test::bpe_golden_path;

namespace {

std::string random_bytes(std::mt19937& random, size_t n, int first = 0, int last = 255) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += static_cast<char>(std::uniform_int_distribution<int>(first, last)(random));
  return out;
}

// A vocabulary of the bytes alone, then these merges, each of two tokens' bytes.
BpeModel bytes_and(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeModel model;
  for (int b = 0; b < 256; ++b) model.tokens.emplace_back(1, static_cast<char>(b));
  auto id = [&](const std::string& t) {
    return static_cast<uint32_t>(std::find(model.tokens.begin(), model.tokens.end(), t) - model.tokens.begin());
  };
  for (const auto& [left, right] : merges) {
    model.merges.emplace_back(id(left), id(right));
    if (id(left + right) == model.tokens.size()) model.tokens.push_back(left + right);
  }
  return model;
}

// The definition: while a pair of neighbours has a merge, apply the first of the lowest rank.
std::vector<uint32_t> merged_by_definition(const BpeModel& m, std::string_view piece) {
  std::vector<std::string> parts;
  for (char c : piece) parts.emplace_back(1, c);
  for (bool found = true; found;) {
    found = false;
    for (auto [left, right] : m.merges) {
      for (size_t i = 0; i + 1 < parts.size() && !found; ++i)
        if (parts[i] == m.tokens[left] && parts[i + 1] == m.tokens[right]) {
          parts[i] += parts[i + 1];
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          found = true;
        }
      if (found) break;
    }
  }
  std::vector<uint32_t> out;
  for (const auto& p : parts)
    out.push_back(static_cast<uint32_t>(std::find(m.tokens.begin(), m.tokens.end(), p) - m.tokens.begin()));
  return out;
}

// Learning by its definition: count all pairs anew before every merge.
BpeModel learned_by_definition(const PieceCounts& counts, const BpeTrainOptions& options) {
  BpeTrainOptions none = options;
  none.vocab_size = 256 + static_cast<int64_t>(options.special.size());
  BpeModel model = train_bpe({}, none);
  auto id = [&](const std::string& t) {
    return static_cast<uint32_t>(std::find(model.tokens.begin(), model.tokens.end(), t) - model.tokens.begin());
  };
  std::vector<std::pair<std::vector<uint32_t>, int64_t>> words;
  for (const auto& [piece, count] : counts) {
    words.push_back({{}, count});
    for (char c : piece) words.back().first.push_back(id(std::string(1, c)));
  }
  while (static_cast<int64_t>(model.tokens.size()) < options.vocab_size) {
    std::map<std::pair<uint32_t, uint32_t>, int64_t> pairs;
    for (const auto& [w, count] : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) pairs[{w[i], w[i + 1]}] += count;
    std::pair<uint32_t, uint32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : pairs)
      if (count > most) std::tie(best, most) = std::pair{pair, count};
    if (most < std::max<int64_t>(options.min_frequency, 1)) break;
    std::string bytes = model.tokens[best.first] + model.tokens[best.second];
    if (id(bytes) == model.tokens.size()) model.tokens.push_back(bytes);
    if (std::find(model.merges.begin(), model.merges.end(), best) == model.merges.end()) model.merges.push_back(best);
    for (auto& [w, count] : words)
      for (size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == best.first && w[i + 1] == best.second) {
          w[i] = id(bytes);
          w.erase(w.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return model;
}

}  // namespace

TEST_CASE("tokens are those of Hugging Face's tokenizers, read from its files and from GPT-2's") {
  std::string text = bpe_golden("text.txt");
  auto golden = nlohmann::json::parse(bpe_golden("golden.json"));
  for (auto [file, answer] : {std::pair{"tokenizer.json", "tokenizer.json"},
                              {"vocab.json", "tokenizer.json"},
                              {"merges.txt", "tokenizer.json"},
                              {"split.json", "split.json"}}) {
    CAPTURE(file);
    Bpe bpe = read_tokenizer(bpe_golden_path(file));
    CHECK(bpe.vocab_size() == 600);
    CHECK(bpe.added_token(kEndOfText) == 0);
    auto expected = golden.at(answer).get<std::vector<uint32_t>>();
    CHECK(bpe.encode(text) == expected);
    CHECK(bpe.decode(expected) == text);
  }
  CHECK(read_tokenizer(bpe_golden_path("many.json")).encode(text) ==
        golden.at("many.json").get<std::vector<uint32_t>>());
}

TEST_CASE("what is learned from a text is what Hugging Face's trainer learns, in the same order") {
  Bpe theirs = read_tokenizer(bpe_golden_path("tokenizer.json"));
  PieceCounts counts;
  count_pieces(Pretokenizer({kGpt2Pattern}), bpe_golden("corpus.txt"), counts);
  BpeModel ours = train_bpe(counts, {.vocab_size = 600});
  CHECK(ours.tokens == theirs.model().tokens);
  CHECK(ours.merges == theirs.model().merges);
}

TEST_CASE("learning equals its definition, also where several pairs make the same bytes") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    PieceCounts counts;
    for (int i = 0; i < 12; ++i)
      counts[random_bytes(random, 1 + random() % 9, 'a', round % 2 ? 'b' : 'd')] +=
          1 + static_cast<int64_t>(random() % 4);
    BpeTrainOptions options{.vocab_size = 280, .min_frequency = round % 3, .special = {"<s>"}};
    BpeModel ours = train_bpe(counts, options), expected = learned_by_definition(counts, options);
    CHECK(ours.tokens == expected.tokens);
    CHECK(ours.merges == expected.merges);
  }
}

TEST_CASE("the vocabulary begins with special tokens and bytes, and stops where pairs are rare") {
  BpeModel m = train_bpe({{"ab", 3}, {"abc", 2}, {"xy", 1}}, {.vocab_size = 1000, .special = {"<a>", "<b>"}});
  CHECK(m.tokens.size() == 2 + 256 + 2);  // ab, abc; xy was seen once
  CHECK(m.tokens[0] == "<a>");
  CHECK(m.tokens[1] == "<b>");
  CHECK(m.tokens[2] == "!");
  CHECK(m.tokens[2 + 255] == "\xad");
  CHECK(m.tokens[258] == "ab");
  CHECK(m.tokens[259] == "abc");
  CHECK(train_bpe({{"xy", 1}}, {.vocab_size = 1000, .min_frequency = 0}).tokens.size() == 258);
  CHECK(train_bpe({}, {.vocab_size = 257}).merges.empty());
  CHECK_THROWS_WITH_AS(train_bpe({}, {.vocab_size = 256}), doctest::Contains("256"), ValueError);
}

TEST_CASE("any bytes come back, UTF-8 or not") {
  Bpe bpe = read_tokenizer(bpe_golden_path("tokenizer.json"));
  std::mt19937 random(1);
  std::vector<std::string> texts = {"", kEndOfText, std::string(1, '\0'), bpe_golden("text.txt")};
  for (int b = 0; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  for (size_t n : {2, 3, 17, 1000}) {
    texts.push_back(random_bytes(random, n));
    texts.push_back(random_bytes(random, n, 0x80, 0xFF));
    std::string cut = bpe_golden("text.txt").substr(n, n);
    cut[n / 2] = '\xff';
    texts.push_back(cut);
  }
  for (const std::string& text : texts)
    for (bool added : {true, false}) CHECK(bpe.decode(bpe.encode(text, added)) == text);
}

TEST_CASE("merging equals its definition, and long pieces take no quadratic time") {
  std::mt19937 random(3);
  BpeModel m = bytes_and(
      {{"b", "a"}, {"a", "b"}, {"ab", "ab"}, {"a", "a"}, {"aa", "b"}, {"ba", "a"}, {"b", "aa"}, {"abab", "ab"}});
  Bpe bpe(m);
  for (size_t n = 1; n < 200; ++n) {
    std::string piece = random_bytes(random, 1 + n % 23, 'a', 'b');
    CAPTURE(piece);
    CHECK(bpe.encode(piece) == merged_by_definition(m, piece));
  }
  CHECK(bpe.encode(std::string(300000, 'a')).size() == 150000);
}

TEST_CASE("a piece that is a token is that one where merges are ignored") {
  BpeModel m = bytes_and({{"a", "b"}, {"b", "c"}, {"a", "bc"}});
  std::vector<uint32_t> merged = Bpe(m).encode("abc"), expected = {256, 'c'};
  CHECK(merged == expected);
  m.ignore_merges = true;
  CHECK(Bpe(m).encode("abc") == std::vector<uint32_t>{258});
  m.added.push_back({.text = "abc", .id = 258});  // but no text becomes a mark by that
  CHECK(Bpe(m).encode("abc", false) == expected);
}

TEST_CASE("merges may make tokens that are also added, if the vocabulary lists them") {
  BpeModel m = bytes_and({{"t", "h"}, {"th", "e"}});
  m.added.push_back({.text = "the", .id = 257, .special = false});
  CHECK(Bpe(m).encode("xthe", false) == std::vector<uint32_t>{'x', 257});
  CHECK(Bpe(m).encode("xthe") == std::vector<uint32_t>{'x', 257});
  m.added[0].in_vocabulary = false;
  CHECK_THROWS_WITH_AS(Bpe{m}, doctest::Contains("merge 1"), ValueError);
}

TEST_CASE("text is normalized between added tokens, not in them") {
  BpeModel m = bytes_and({});
  m.normalizer = {{.type = "Lowercase"}, {.type = "Prepend", .content = "_"}};
  m.added.push_back({.text = "<A>", .id = 256});
  m.added.push_back({.text = "BC", .id = 257, .normalized = true});
  m.tokens.insert(m.tokens.end(), {"<A>", "BC"});
  using Ids = std::vector<uint32_t>;
  CHECK(Bpe(m).encode("X<A>Y") == Ids{'_', 'x', 256, '_', 'y'});
  CHECK(Bpe(m).encode("<a><A>") == Ids{'_', '<', 'a', '>', 256});
  CHECK(Bpe(m).encode("<A>_bC") == Ids{256, '_', 257});  // the token's text is normalized too: "_bc"
  CHECK(Bpe(m).encode("Bc") == Ids{257});
  CHECK(Bpe(m).encode("Bc<A>", false) == Ids{'_', 'b', 'c', '<', 'a', '>'});
}

TEST_CASE("what a vocabulary lacks is named") {
  BpeModel m = bytes_and({});
  m.tokens['q'] = "";
  Bpe bpe(m);
  CHECK_THROWS_WITH_AS(bpe.encode("eq"), doctest::Contains("113"), ValueError);
  CHECK_THROWS_WITH_AS(bpe.decode('q'), doctest::Contains("113"), ValueError);
  CHECK_THROWS_WITH_AS(bpe.decode(256), doctest::Contains("256"), ValueError);
  m.merges.emplace_back('a', 'b');
  CHECK_THROWS_WITH_AS(Bpe(std::move(m)), doctest::Contains("merge 0"), ValueError);
  m = bytes_and({});
  m.merges.emplace_back('a', 300);
  CHECK_THROWS_AS(Bpe(std::move(m)), ValueError);
  m = bytes_and({});
  m.added.push_back({.text = "<s>", .id = 3});
  CHECK_THROWS_WITH_AS(Bpe(std::move(m)), doctest::Contains("<s>"), ValueError);
}
