// The safetensors format: what is written is what the reference implementation writes, and what it writes is read.
#include "nn/checkpoint_support.h"

#include <cleave/nn/internal/boxes.h>

#include <cstdlib>
#include <numeric>

using namespace cleave;
using test::TemporaryFolder;

namespace {

std::string with_header(const std::string& header, const std::string& data) {
  uint64_t n = header.size();
  std::string out(8, 0);
  std::memcpy(out.data(), &n, 8);
  return out + header + data;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets,
                  const std::string& name = "w") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// Made by tests/goldens/make_safetensors.py with the Python package.
std::string reference() {
  const char* source = std::getenv("CLEAVE_SOURCE");
  std::filesystem::path root = source ? source : std::filesystem::path(__FILE__).parent_path() / "../..";
  return (root / "tests/goldens/reference.safetensors").string();
}

}  // namespace

TEST_CASE("a file of the reference implementation has the values it was made of") {
  nn::SafetensorsFile file(reference());
  CHECK(file.metadata() == nn::Metadata{{"format", "pt"}});
  REQUIRE(file.entries().size() == 11);
  Tensor embed = file.read("embed.weight");
  CHECK(embed.type() == TensorType{DType::f32, {15, 3}});
  for (int i = 0; i < 45; ++i) CHECK(embed.data<float>()[i] == static_cast<float>(i) / 7);
  std::vector<double> w(13), h = {0, 1 / 3.0, 2 / 3.0, 1, 4 / 3.0};
  std::iota(w.begin(), w.end(), -6.0);
  CHECK(file.read("blocks.0.w").dtype() == DType::bf16);
  CHECK(to_vector<double>(file.read("blocks.0.w")) == w);
  CHECK(file.read("blocks.0.h").dtype() == DType::f16);
  CHECK(allclose(cast(file.read("blocks.0.h"), DType::f64), tensor(h, {5}), {.rtol = 1e-3}));
  CHECK(allclose(file.read("blocks.10.w"), tensor<double>({-1, -2 / 3., -1 / 3., 0, 1 / 3., 2 / 3., 1}, {7})));
  CHECK(to_vector<int64_t>(file.read("ids")) == std::vector<int64_t>{1, -2, 3, int64_t{1} << 40});
  CHECK(to_vector<int64_t>(file.read("ids32")) == std::vector<int64_t>{INT32_MIN, 7});
  CHECK(to_vector<int64_t>(file.read("bytes")) == std::vector<int64_t>{0, 1, 255});
  CHECK(file.read("mask").type() == TensorType{DType::boolean, {1, 3}});
  CHECK(to_vector<int64_t>(file.read("mask")) == std::vector<int64_t>{1, 0, 1});
  CHECK(item<double>(file.read("scalar")) == 2.5);
  CHECK(file.read("empty").shape() == Shape{0, 4});
  CHECK(file.find("a \"name\" ü") != nullptr);
  CHECK(file.find("none") == nullptr);
}

TEST_CASE("what is written is byte for byte what the reference implementation writes, from any ranks and layouts") {
  TemporaryFolder folder;
  nn::SafetensorsFile file(reference());
  nn::NamedTensors tensors;
  for (const auto& e : file.entries()) tensors.emplace(tensors.begin(), e.name, file.read(e.name));
  std::ifstream in(reference(), std::ios::binary);
  std::string golden{std::istreambuf_iterator<char>(in), {}};
  nn::save_safetensors(folder.path("one"), tensors, file.metadata());
  CHECK(folder.read("one") == golden);
  for (int n : {1, 2, 3, 4}) {
    dist::run_ranks({.ranks = n}, [&](dist::World& world) {
      dist::DeviceMesh mesh = test::grid(world);
      nn::NamedTensors split;
      for (const auto& [name, x] : tensors)
        split.emplace_back(name, x.dim() == 2   ? dist::distribute(clone(x), mesh.layout("tp, dp"))
                                 : x.dim() == 1 ? dist::distribute(clone(x), mesh.layout("dp.tp"))
                                                : x);
      nn::save_safetensors(folder.path("split"), split, file.metadata());
    });
    CHECK(folder.read("split") == golden);
  }
  CHECK(test::names(folder) == std::vector<std::string>{"one", "split"});
}

TEST_CASE("any box of any tensor") {
  TemporaryFolder folder;
  Tensor x = test::normal(1, {3, 4, 5});
  nn::save_safetensors(folder.path("f"), {{"x", x}});
  nn::SafetensorsFile file(folder.path("f"));
  const auto& e = *file.find("x");
  for (int64_t a = 0; a <= 3; ++a)
    for (int64_t b = 0; b <= 4; ++b)
      for (int64_t c = 0; c <= 5; ++c) {
        Tensor part = slice(slice(slice(x, 0, 3 - a, 3), 1, (4 - b) / 2, (4 - b) / 2 + b), 2, 0, c);
        CHECK(equal(file.read(e, {{3 - a, (4 - b) / 2, 0}, {a, b, c}}), part));
      }
  CHECK_THROWS_AS(file.read(e, {{0, 0, 0}, {3, 4, 6}}), ShapeError);
  CHECK_THROWS_AS(file.read(e, {{-1, 0, 0}, {1, 1, 1}}), ShapeError);
  CHECK_THROWS_AS(file.read(e, {{0, 0}, {1, 1}}), ShapeError);
  CHECK_THROWS_AS(file.read("y"), FileError);
}

TEST_CASE("a box in parts has the runs of the whole, wherever it is cut") {
  const Shape global{3, 4, 5};
  for (const dist::Box& box : {dist::Box{{0, 0, 0}, {3, 4, 5}},
                               {{1, 0, 0}, {2, 4, 5}},
                               {{1, 1, 0}, {2, 2, 5}},
                               {{0, 1, 2}, {3, 3, 2}},
                               {{0, 0, 4}, {3, 4, 1}},
                               {{0, 0, 0}, {3, 0, 5}}}) {
    int64_t total = numel(box.shape) * 4;
    auto sources = [&](const std::vector<int64_t>& cuts) {
      std::vector<int64_t> out(static_cast<size_t>(total), -1);
      for (size_t i = 0; i + 1 < cuts.size(); ++i)
        nn::detail::each_run(global, box, 4, cuts[i], cuts[i + 1], [&](int64_t from, int64_t to, int64_t bytes) {
          CHECK((to >= cuts[i] && bytes > 0 && to + bytes <= cuts[i + 1]));
          for (int64_t b = 0; b < bytes; ++b) out[static_cast<size_t>(to + b)] = from + b;
        });
      return out;
    };
    std::vector<int64_t> whole;
    for (int64_t i = 0; i < box.shape[0]; ++i)
      for (int64_t j = 0; j < box.shape[1]; ++j)
        for (int64_t b = 0; b < 4 * box.shape[2]; ++b)
          whole.push_back(4 * (((box.offset[0] + i) * 4 + box.offset[1] + j) * 5 + box.offset[2]) + b);
    CHECK(sources({0, total}) == whole);
    for (int64_t cut = 0; cut <= total; ++cut) CHECK(sources({0, cut / 2, cut, total}) == whole);
  }
}

TEST_CASE("damaged and hostile files are errors that name file, tensor and fault") {
  TemporaryFolder folder;
  nn::save_safetensors(folder.path("good"), {{"w", tensor<float>({1, 2}, {2})}});
  std::string good = folder.read("good");
  auto rejected = [&](const std::string& bytes, const char* why) {
    CAPTURE(why);
    std::string path = folder.write("bad", bytes);
    CHECK_THROWS_WITH_AS(nn::SafetensorsFile{path}, doctest::Contains(why), FileError);
    CHECK_THROWS_WITH_AS(nn::SafetensorsFile{path}, doctest::Contains("bad"), FileError);
  };
  for (size_t n = 0; n < good.size(); ++n)
    CHECK_THROWS_AS(nn::SafetensorsFile(folder.write("cut", good.substr(0, n))), FileError);
  rejected(good + "x", "follow the header");
  rejected("", "0 bytes");
  rejected(std::string(8, '\xff') + good, "header should have");
  rejected(std::string("\0\0\0\0\0\0\0\x10", 8) + good, "header should have");  // 2^60
  rejected(with_header("{\"w\": ", ""), "malformed");
  rejected(with_header("[]", ""), "no JSON object");
  rejected(with_header("", ""), "no JSON object");
  rejected(with_header("{\"\xff\": 1}", ""), "malformed");
  auto one = [&](const std::string& text) { return with_header("{" + text + "}", std::string(8, 0)); };
  CHECK_NOTHROW(nn::SafetensorsFile(folder.write("ok", one(entry("F32", "[2]", "[0,8]") + " "))));
  CHECK_NOTHROW(nn::SafetensorsFile(folder.write("none", with_header("{}", ""))));
  rejected(one(entry("F8_E5M2", "[8]", "[0,8]")), "F8_E5M2");
  rejected(one(entry("F32", "[3]", "[0,8]")), "needs 12 bytes");
  rejected(one(entry("F64", "[2]", "[0,8]")), "needs 16 bytes");
  rejected(one(entry("F32", "[2]", "[8,0]")), "lies at");
  rejected(one(entry("F32", "[2]", "[4,12]")), "lies at");
  rejected(one(entry("F32", "[1]", "[4,8]")), "no tensor covers the bytes 0 to 4");
  rejected(one(entry("F32", "[-2]", "[0,8]")), "shape of w is the number -2");
  rejected(one(entry("F32", "[2.0]", "[0,8]")), "shape of w is the number 2.0");
  rejected(one(entry("F32", "[2]", "[0,-8]")), "-8");
  rejected(one(entry("F32", "[99999999999999999999]", "[0,8]")), "99999999999999999999");
  rejected(one(entry("F32", "[9223372036854775808]", "[0,8]")), "9223372036854775808");
  rejected(one(entry("F32", "[4611686018427387904,4]", "[0,8]")), "too many elements");
  rejected(one(entry("F32", "[0,4611686018427387904,4611686018427387904]", "[0,0]")), "too many elements");
  rejected(one(entry("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]")), "more than 8");
  rejected(one(entry("F32", "[2]", "[0,8,8]")), "more than 2");
  rejected(one(entry("F32", "[2]", "[0]")), "1 data_offsets");
  rejected(one(entry("F32", "\"2\"", "[0,8]")), "shape of w is a text");
  rejected(one(entry("F32", "[[2]]", "[0,8]")), "shape of w is a list");
  rejected(one(entry("F32", "[{}]", "[0,8]")), "shape of w is an object");
  rejected(one(entry("F32", "null", "[0,8]")), "shape of w is null");
  rejected(one("\"w\":{\"dtype\":\"F32\"}"), "lacks its shape");
  rejected(one("\"w\":3"), "w is the number 3");
  rejected(one("\"w\":{\"dtype\":[\"F32\"]}"), "dtype of w is a list");
  rejected(one("\"__metadata__\":{\"a\":1}," + entry("F32", "[2]", "[0,8]")), "a of __metadata__");
  rejected(one("\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," + entry("F32", "[2]", "[0,8]")),
           "a of __metadata__ stands twice");
  rejected(one(entry("F32", "[1]", "[0,4]") + "," + entry("F32", "[1]", "[4,8]")), "w stands twice");
  rejected(one("\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"),
           "dtype of w stands twice");
  rejected(one(entry("F32", "[2]", "[0,8]") + "," + entry("F32", "[1]", "[4,8]", "v")), "overlaps");
  rejected(one(entry("F32", "[1]", "[0,4]")), "4 bytes, but 8 follow");
  rejected(with_header(std::string(100'000, '['), ""), "no JSON object");
  rejected(with_header("{\"w\":" + std::string(100'000, '['), ""), "is a list");
  rejected(with_header("{\"w\":{\"shape\":" + std::string(100'000, '['), ""), "is a list");
  CHECK_THROWS_AS(nn::SafetensorsFile(folder.path("none such")), FileError);
  CHECK_THROWS_AS(nn::SafetensorsFile(folder.path()), FileError);
  nn::SafetensorsFile bools(folder.write("bools", with_header("{" + entry("BOOL", "[2]", "[0,2]") + "}", "\1\2")));
  CHECK_THROWS_WITH_AS(bools.read("w"), doctest::Contains("the byte 2"), FileError);
}

TEST_CASE("a file takes its name only when it is complete") {
  TemporaryFolder folder;
  folder.write("f", "old");
  Tensor x = ones({2});
  CHECK_THROWS_AS(nn::save_safetensors(folder.path("f"), {{"w", x}, {"w", x}}), ValueError);
  CHECK_THROWS_AS(nn::save_safetensors(folder.path("f"), {{"__metadata__", x}}), ValueError);
  CHECK_THROWS_AS(nn::save_safetensors(folder.path("f"), {{"\xff", x}}), ValueError);
  CHECK_THROWS_AS(
      nn::save_safetensors(folder.path("f"), {{"w", nn::build<test::Model>({.deferred = true}).small.tensor()}}),
      ValueError);
  CHECK(folder.read("f") == "old");
  CHECK(test::names(folder) == std::vector<std::string>{"f"});
  CHECK_THROWS_AS(nn::save_safetensors(folder.path("no/folder"), {}), FileError);
  CHECK_THROWS_AS(nn::save_safetensors(folder.path(), {}), FileError);
  nn::save_safetensors(folder.path("f"), {{"w", x}});
  CHECK(equal(nn::SafetensorsFile(folder.path("f")).read("w"), x));
}
