// Files of tokenizers: which are read, what is said of the others, and what is written.
#include "gpt/bpe_files.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include <nlohmann/json.hpp>

#include "apps/bpe_goldens.h"
#include "apps/temporary_folder.h"

using namespace gpt;
using cleave::FileError;
using gpt::test::bpe_golden;
using gpt::test::bpe_golden_path;
using gpt::test::TemporaryFolder;
using Json = nlohmann::json;

namespace {

bool same(const BpeModel& a, const BpeModel& b) {
  return a.tokens == b.tokens && a.merges == b.merges && a.added == b.added && a.normalizer == b.normalizer &&
         a.patterns == b.patterns && a.ignore_merges == b.ignore_merges;
}

// The message about tokenizer.json of the goldens with a change.
std::string refused(const TemporaryFolder& folder, const std::function<void(Json&)>& change) {
  Json file = Json::parse(bpe_golden("tokenizer.json"));
  change(file);
  std::string path = folder.write("tokenizer.json", file.dump());
  try {
    read_tokenizer(path);
  } catch (const FileError& e) {
    CHECK(std::string(e.what()).find(path) != std::string::npos);
    return e.what();
  }
  FAIL_CHECK("was read");
  return "";
}

}  // namespace

TEST_CASE("the byte alphabet has every byte once, printable ASCII first") {
  auto bytes = byte_alphabet();
  CHECK(std::set<uint8_t>(bytes.begin(), bytes.end()).size() == 256);
  CHECK(bytes[0] == '!');
  CHECK(bytes[93] == '~');
  CHECK(bytes[94] == 0xA1);
  CHECK(bytes[188] == 0);  // U+0100
  CHECK(bytes[255] == 0xAD);
}

TEST_CASE("what is written is read back the same, whatever it came from") {
  TemporaryFolder folder;
  for (const char* name : {"tokenizer.json", "split.json", "vocab.json"}) {
    CAPTURE(name);
    Bpe bpe = read_tokenizer(bpe_golden_path(name));
    write_tokenizer(bpe, folder.path("t.json"));
    CHECK(same(read_tokenizer(folder.path("t.json")).model(), bpe.model()));
  }
  BpeModel model = read_tokenizer(bpe_golden_path("tokenizer.json")).model();
  model.ignore_merges = true;
  model.tokens.resize(610);  // ids without tokens
  for (const char* text : {"a token", "\u4e16"}) {
    model.added.push_back({.text = text,
                           .id = static_cast<uint32_t>(model.tokens.size()),
                           .special = false,
                           .normalized = true,
                           .single_word = true,
                           .lstrip = true,
                           .rstrip = true});
    model.tokens.emplace_back(text);
  }
  model.normalizer = {{.type = "NFC"},
                      {.type = "Prepend", .content = "_"},
                      {.type = "Replace", .pattern = " ", .content = "_"},
                      {.type = "Replace", .pattern = "[a-z]", .regex = true, .content = ""}};
  model.patterns = {"the", R"(\p{N})", kGpt2Pattern};
  Bpe bpe(model);
  write_tokenizer(bpe, folder.path("t.json"));
  CHECK(same(read_tokenizer(folder.path("t.json")).model(), model));
  CHECK_THROWS_AS(write_tokenizer(bpe, folder.path("no/such/t.json")), FileError);
}

TEST_CASE("a tokenizer.json as Hugging Face writes one is written for GPT-2's pattern") {
  TemporaryFolder folder;
  write_tokenizer(read_tokenizer(bpe_golden_path("tokenizer.json")), folder.path("t.json"));
  Json ours = Json::parse(folder.read("t.json")), theirs = Json::parse(bpe_golden("tokenizer.json"));
  for (const char* part : {"version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model"})
    CHECK(ours.at(part) == theirs.at(part));
  write_tokenizer(read_tokenizer(bpe_golden_path("split.json")), folder.path("t.json"));
  CHECK(Json::parse(folder.read("t.json")).at("pre_tokenizer").at("pretokenizers").at(0) ==
        Json::parse(bpe_golden("split.json")).at("pre_tokenizer").at("pretokenizers").at(0));
}

TEST_CASE("merges may be written as pairs or as lines; added tokens need not be in the vocabulary") {
  TemporaryFolder folder;
  Json file = Json::parse(bpe_golden("tokenizer.json"));
  for (auto [name, value] :
       {std::pair<const char*, Json>{"unk_token", "<unk>"}, {"byte_fallback", true}, {"dropout", 0}})
    file["model"][name] = value;  // which no text has a use for
  for (Json& merge : file["model"]["merges"])
    merge = merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
  Bpe lines = read_tokenizer(folder.write("t.json", file.dump()));
  CHECK(same(lines.model(), read_tokenizer(bpe_golden_path("tokenizer.json")).model()));
  file["added_tokens"].push_back({{"id", 600}, {"content", "<extra>"}, {"special", true}});
  Bpe more = read_tokenizer(folder.write("t.json", file.dump()));
  CHECK(more.vocab_size() == 601);
  CHECK(more.encode("<extra>") == std::vector<uint32_t>{600});
  write_tokenizer(more, folder.path("again.json"));
  CHECK(same(read_tokenizer(folder.path("again.json")).model(), more.model()));
}

TEST_CASE("GPT-2's files are found by any of their names") {
  TemporaryFolder folder;
  BpeModel expected = read_tokenizer(bpe_golden_path("vocab.json")).model();
  folder.write("encoder.json", bpe_golden("vocab.json"));
  folder.write("vocab.bpe", bpe_golden("merges.txt"));
  CHECK(same(read_tokenizer(folder.path("vocab.bpe")).model(), expected));
  CHECK(same(read_tokenizer(folder.path("encoder.json")).model(), expected));
  std::filesystem::remove(folder.path("encoder.json"));
  CHECK_THROWS_WITH_AS(read_tokenizer(folder.path("vocab.bpe")), doctest::Contains("encoder.json"), FileError);
  folder.write("encoder.json", "{\"a\": 0}");
  CHECK_THROWS_WITH_AS(read_tokenizer(folder.path("vocab.bpe")), doctest::Contains("needs the token"), FileError);
  folder.write("vocab.bpe", "#version: 0.2\na b c\n");
  CHECK_THROWS_WITH_AS(read_tokenizer(folder.path("vocab.bpe")), doctest::Contains("a b c"), FileError);
}

TEST_CASE("tokenizers of other kinds are refused by what they have") {
  TemporaryFolder folder;
  auto has = [&](const char* words, const std::function<void(Json&)>& change) {
    std::string message = refused(folder, change);
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
  };
  has("Unigram", [](Json& f) { f["model"]["type"] = "Unigram"; });
  for (const char* type : {"BertNormalizer", "Strip", "Precompiled"}) {
    has(type, [&](Json& f) { f["normalizer"] = {{"type", type}}; });
    has(type, [&](Json& f) { f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", type}}}}}; });
  }
  has("no pre-tokenizer", [](Json& f) { f["pre_tokenizer"] = nullptr; });
  has("Whitespace", [](Json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  has("add_prefix_space", [](Json& f) { f["pre_tokenizer"]["add_prefix_space"] = true; });
  auto without_a_byte = [](Json& f) {
    f["model"]["vocab"]["\u00e9\u00e9"] = f["model"]["vocab"]["\u00e9"];
    f["model"]["vocab"].erase("\u00e9");
    f["model"]["merges"].clear();
  };
  has("byte_fallback\" and 255", [&](Json& f) { (without_a_byte(f), f["model"]["byte_fallback"] = true); });
  has("unk_token\" and 255", [&](Json& f) { (without_a_byte(f), f["model"]["unk_token"] = "<unk>"); });
  has("dropout", [](Json& f) { f["model"]["dropout"] = 0.1; });
  has("Punctuation", [](Json& f) {
    f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Punctuation"}}, f["pre_tokenizer"]}}};
  });
  has("Digits", [](Json& f) {  // behind ByteLevel
    f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {f["pre_tokenizer"], {{"type", "Digits"}}}}};
  });
  has("\u4e16", [](Json& f) { f["model"]["vocab"]["\u4e16"] = 600; });
  has("a(b", [](Json& f) {
    Json byte_level = f["pre_tokenizer"];
    byte_level["use_regex"] = false;
    Json split = {{"type", "Split"}, {"pattern", {{"Regex", "a(b"}}}, {"behavior", "Isolated"}, {"invert", false}};
    f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  });
}

TEST_CASE("malformed files are refused by name and fault") {
  TemporaryFolder folder;
  std::string good = bpe_golden("tokenizer.json");
  for (size_t n = 0; n < good.size(); n += 97) {
    CAPTURE(n);
    CHECK_THROWS_AS(read_tokenizer(folder.write("tokenizer.json", good.substr(0, n))), FileError);
  }
  CHECK_THROWS_AS(read_tokenizer(folder.path("none.json")), FileError);
  CHECK_THROWS_AS(read_tokenizer(folder.path()), FileError);
  CHECK_THROWS_AS(read_tokenizer(folder.write("tokenizer.json", "[1]")), FileError);
  auto has = [&](const char* words, const std::function<void(Json&)>& change) {
    std::string message = refused(folder, change);
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
  };
  has("the id 1", [](Json& f) { f["model"]["vocab"]["\""] = 1; });
  has("has no id", [](Json& f) { f["model"]["vocab"]["!"] = -1; });
  has("has no id", [](Json& f) { f["model"]["vocab"]["!"] = "1"; });
  has("4294967295", [](Json& f) { f["model"]["vocab"]["!"] = 4294967295u; });
  has("the id", [](Json& f) { f["model"]["vocab"]["!"] = 99999999999u; });
  has("is empty", [](Json& f) { f["model"]["vocab"][""] = 600; });
  has("needs the token", [](Json& f) { f["model"]["merges"].push_back({"~", "~"}); });
  has("not of two tokens", [](Json& f) { f["model"]["merges"].push_back("ab"); });
  has("malformed", [](Json& f) { f["model"]["merges"].push_back({"a"}); });
  has("malformed", [](Json& f) { f["model"].erase("vocab"); });
  has("the ids 0 and 5", [](Json& f) { f["added_tokens"][0]["id"] = 5; });
  // Hugging Face would give it the id 600.
  has("the ids 600 and 700", [](Json& f) { f["added_tokens"].push_back({{"id", 700}, {"content", "<extra>"}}); });
  has("letters stand for", [](Json& f) {
    f["added_tokens"].push_back({{"id", f["model"]["vocab"]["\u00e9"]}, {"content", "\u00e9"}});
  });
  has("malformed", [](Json& f) { f["pre_tokenizer"] = {1, 2}; });
}
