// Thousands of files that are nearly right: each is read, or refused by a FileError; never anything else.
#include "nn/checkpoint_support.h"

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
  const std::vector<std::string> pieces = {"[",
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
  std::mt19937 random(5);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  size_t header = 8;
  uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  int read = 0, cases = 6000;
  for (int i = 0; i < cases; ++i) {
    std::string bad = good;
    for (size_t edits = 1 + below(3); edits-- > 0;) {
      size_t at = below(4) == 0 ? below(bad.size()) : std::min(header + below(length), bad.size() - 1);
      switch (below(5)) {
        case 0:
          bad[at] = static_cast<char>(below(256));
          break;
        case 1:
          bad.erase(at, 1 + below(4));
          break;
        case 2:
          bad.insert(at, pieces[below(pieces.size())]);
          break;
        case 3:
          bad.replace(at, 1 + below(6), pieces[below(pieces.size())]);
          break;
        default:
          bad = bad.substr(0, at) + bad.substr(std::min(bad.size(), at + below(30)));
      }
      if (bad.size() < 16) bad = good;
    }
    // Half of them with a length that suits, so that the parser is reached with all kinds of texts.
    if (below(2) == 0) {
      uint64_t right = std::min<uint64_t>(bad.size() - 8, length + bad.size() - good.size());
      std::memcpy(bad.data(), &right, 8);
    }
    read += reads(folder.write("bad", bad));
  }
  CHECK(read > cases / 100);  // harmless ones: a byte of data, a name
  CHECK(read < cases * 9 / 10);
}
