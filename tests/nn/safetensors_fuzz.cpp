// Thousands of files that are nearly right: each is read, or refused by a FileError; never anything else.
#include "nn/checkpoint_support.h"

#include <cstdlib>
#include <random>

using namespace cleave;
using test::TemporaryFolder;

namespace {

// Opens and reads all of it; whether that went well.
bool reads(const std::string& path) {
  try {
    nn::SafetensorsFile file(path);
    int64_t bytes = 0;
    for (const auto& e : file.entries()) bytes += numel(file.read(e.name).shape()) * size_of(e.dtype);
    CHECK(bytes == file.file_bytes() - file.header_bytes());
    return true;
  } catch (const FileError&) { return false; }
}

/// Texts and files that are nearly right.
class Mutations {
 public:
  explicit Mutations(unsigned seed) : random_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  /// One edit of `text` in its bytes from `begin` to `end`, or anywhere.
  void edit(std::string& text, size_t begin, size_t end) {
    if (text.empty()) return;
    size_t at =
        below(4) == 0 || begin >= end ? below(text.size()) : std::min(begin + below(end - begin), text.size() - 1);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + below(4));
        break;
      case 2:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        text.replace(at, 1 + below(6), kPieces[below(kPieces.size())]);
        break;
      default:
        text = text.substr(0, at) + text.substr(std::min(text.size(), at + below(30)));
    }
  }

 private:
  const std::vector<std::string> kPieces = {"[",
                                            "]",
                                            "{",
                                            "}",
                                            "\"",
                                            ",",
                                            ":",
                                            "-",
                                            "9",
                                            "0",
                                            "99999999999999999999",
                                            "1e9",
                                            "null",
                                            "true",
                                            "[0,0]",
                                            "\"F32\"",
                                            "\"BOOL\"",
                                            "\\",
                                            "\xff",
                                            "\"a.w\":{",
                                            " ",
                                            "\"shape\":[1]",
                                            "\"data_offsets\":[0,120]",
                                            std::string(1, '\0')};
  std::mt19937 random_;
};

// $CLEAVE_FUZZ times as many cases as the tests run by themselves.
int cases(int usual) {
  const char* times = std::getenv("CLEAVE_FUZZ");
  return usual * (times ? std::max(1, std::atoi(times)) : 1);
}

}  // namespace

TEST_CASE("mutated files are read or refused") {
  TemporaryFolder folder;
  nn::save_safetensors(folder.path("good"),
                       {{"a.w", test::normal(1, {3, 5})},
                        {"b", cast(test::normal(2, {7}), DType::bf16)},
                        {"mask", tensor<bool>({true, false, true}, {3})},
                        {"none", zeros({0, 2})}},
                       {{"format", "pt"}});
  const std::string good = folder.read("good");
  Mutations mutations(5);
  size_t header = 8;
  uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  int read = 0, all = cases(6000);
  for (int i = 0; i < all; ++i) {
    std::string bad = good;
    for (size_t edits = 1 + mutations.below(3); edits-- > 0;) {
      mutations.edit(bad, header, header + length);
      if (bad.size() < 16) bad = good;
    }
    // Half of them with a length that suits, so that the parser is reached with all kinds of texts.
    if (mutations.below(2) == 0) {
      uint64_t right = std::min<uint64_t>(bad.size() - 8, length + bad.size() - good.size());
      std::memcpy(bad.data(), &right, 8);
    }
    read += reads(folder.write("bad", bad));
  }
  CHECK(read > all / 100);  // harmless ones: a byte of data, a name
  CHECK(read < all * 9 / 10);
}

TEST_CASE("a checkpoint of which any file is mutated gives the values that were saved, or is refused") {
  TemporaryFolder folder;
  Tensor a = test::normal(1, {3, 5}), b = cast(test::normal(2, {7}), DType::bf16);
  nn::CheckpointContent content{.groups = {{"model", {{"a.w", a}, {"b", b}}}, {"optimizer", {{"a.w.m", a}}}},
                                .values = {{"step", int64_t{4}}, {"text", std::string("x")}}};
  nn::save_checkpoint(folder.path("ours"), content, {.max_file_bytes = 100});
  std::filesystem::copy(folder.path("ours"), folder.path("others"));
  std::filesystem::remove(folder.path("others/manifest.json"));
  auto loads = [&](const std::string& name) {
    try {
      nn::Checkpoint file(folder.path(name));
      NoGrad off;
      Tensor x = zeros({3, 5}, {.dtype = DType::f64}), y = zeros({7}, {.dtype = DType::bf16});
      file.load({{"a.w", x}, {"b", y}});
      CHECK(equal(x, a));
      CHECK(equal(y, b));
      if (!file.has_manifest()) return true;
      for (const auto& [group, moment] :
           file.read("optimizer", [](const auto&, const auto&) { return dist::Layout(); }))
        CHECK(equal(moment, a));
      CHECK(file.integer("step") == 4);
      CHECK(file.text("text") == "x");
      return true;
    } catch (const FileError&) { return false; }
  };
  CHECK(loads("ours"));
  CHECK(loads("others"));
  Mutations mutations(7);
  int loaded = 0, all = cases(1200);
  std::vector<std::string> files;
  for (const std::string& name : test::names(folder, "ours")) files.push_back("ours/" + name);
  CHECK(files.size() == 6);
  files.insert(files.end(), 4, "ours/manifest.json");  // more often
  files.insert(files.end(), 2, "others/model.safetensors.index.json");
  for (int i = 0; i < all; ++i) {
    const std::string& name = files[mutations.below(files.size())];
    std::string good = folder.read(name), bad = good;
    for (size_t edits = 1 + mutations.below(2); edits-- > 0;) mutations.edit(bad, 0, bad.size());
    folder.write(name, bad);
    CAPTURE(name);
    CAPTURE(bad);
    loaded += loads(name.substr(0, name.find('/')));
    folder.write(name, good);
  }
  CHECK(loaded > all / 200);  // harmless ones: a space
  CHECK(loaded < all / 2);
}
