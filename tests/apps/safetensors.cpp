// The safetensors format: what is written is what the format says and what is read; damaged files are errors.
#include <cleave/core/error.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>

#include "apps/temporary_folder.h"
#include "gpt/safetensors.h"

#include <nlohmann/json.hpp>

using namespace gpt;
using namespace cleave;
using gpt::test::TemporaryFolder;

namespace {

void write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
           const Metadata& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, t] : tensors) entries.push_back({name, t.dtype(), t.shape()});
  SafetensorsWriter file(path, entries, metadata);
  for (const auto& [name, t] : tensors) file.write(t);
  file.commit();
}

std::string with_header(const std::string& header, const std::string& data) {
  uint64_t n = header.size();
  std::string out(8, 0);
  std::memcpy(out.data(), &n, 8);
  return out + header + data;
}

}  // namespace

TEST_CASE("every dtype comes back, and views are written dense") {
  TemporaryFolder folder;
  Tensor x = randn({3, 4}, {.dtype = DType::f64, .seed = 1});
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
    tensors.emplace_back("a." + std::string(to_string(t)), cast(t == DType::u8 ? abs(x) : x, t));
  tensors.emplace_back("view", transpose(x, 0, 1));
  tensors.emplace_back("scalar", full({}, 2.5));
  tensors.emplace_back("nothing", zeros({0, 3}));
  write(folder.path("f"), tensors, {{"k", "v \"quoted\""}});
  SafetensorsFile file = read_safetensors(folder.path("f"));
  CHECK(file.metadata == Metadata{{"k", "v \"quoted\""}});
  CHECK(file.tensors.size() == tensors.size());
  for (const auto& [name, t] : tensors) CHECK(equal(file.tensors.at(name), t));
}

TEST_CASE("the bytes are those of the format") {
  TemporaryFolder folder;
  write(folder.path("f"), {{"w", tensor<float>({1, 2}, {2})}, {"n", tensor<int64_t>({3}, {1})}}, {});
  std::string bytes = folder.read("f");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  auto header = nlohmann::json::parse(bytes.substr(8, length));
  CHECK(header == nlohmann::json::parse(
                      R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                          "n": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]}})"));
  float w[2];
  std::memcpy(w, bytes.data() + 8 + length, 8);
  CHECK(w[1] == 2.0f);
  CHECK(bytes.size() == 8 + length + 16);
}

TEST_CASE("a file takes its name only when it is complete") {
  TemporaryFolder folder;
  folder.write("f", "old");
  {
    SafetensorsWriter file(folder.path("f"), {{"w", DType::f32, {2}}}, {});
    CHECK_THROWS_AS(file.write(ones({3})), ShapeError);
    CHECK_THROWS_AS(SafetensorsWriter(folder.path("g"), {{"w", DType::f32, {2}}}, {}).commit(), ShapeError);
  }
  CHECK(folder.read("f") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_THROWS_AS(SafetensorsWriter(folder.path("no/folder"), {}, {}), FileError);
}

TEST_CASE("damaged files are errors that name the file") {
  TemporaryFolder folder;
  write(folder.path("good"), {{"w", tensor<float>({1, 2}, {2})}}, {});
  std::string good = folder.read("good");
  auto rejected = [&](const std::string& bytes, const char* why) {
    CAPTURE(why);
    CHECK_THROWS_WITH_AS(read_safetensors(folder.write("bad", bytes)), doctest::Contains(why), FileError);
    CHECK_THROWS_WITH_AS(read_safetensors(folder.path("bad")), doctest::Contains("bad"), FileError);
  };
  for (size_t n = 0; n < good.size(); ++n)
    CHECK_THROWS_AS(read_safetensors(folder.write("cut", good.substr(0, n))), FileError);
  rejected(good + "x", "follow the header");
  rejected("", "0 bytes");
  rejected(std::string(8, '\xff') + good, "header should have");
  rejected(with_header("{\"w\": ", ""), "malformed");
  rejected(with_header("[]", ""), "no JSON object");
  auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return with_header(
        "{\"w\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape + ", \"data_offsets\": " + offsets + "}}",
        std::string(8, 0));
  };
  CHECK_NOTHROW(read_safetensors(folder.write("ok", entry("F32", "[2]", "[0, 8]"))));
  rejected(entry("F8_E5M2", "[8]", "[0, 8]"), "F8_E5M2");
  rejected(entry("F32", "[3]", "[0, 8]"), "needs 12 bytes");
  rejected(entry("F32", "[2]", "[8, 0]"), "lies at");
  rejected(entry("F32", "[2]", "[4, 12]"), "lies at");
  rejected(entry("F32", "[-2]", "[0, 8]"), "size -2");
  rejected(entry("F32", "[4611686018427387904, 4]", "[0, 8]"), "size");
  rejected(entry("F32", "[1,1,1,1,1,1,1,1,2]", "[0, 8]"), "9 dims");
  rejected(entry("F32", "\"2\"", "[0, 8]"), "malformed");
  rejected(with_header("{\"w\": {\"dtype\": \"F32\"}}", ""), "malformed");
  CHECK_THROWS_AS(read_safetensors(folder.path("none")), FileError);
  CHECK_THROWS_AS(read_safetensors(folder.path()), FileError);
}
