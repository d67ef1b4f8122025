// Checkpoints whose manifest or index lies, tensors without bytes, and what a load tells of the tensors it wrote.
#include "nn/checkpoint_support.h"

#include <cleave/nn/internal/file_operations.h>

#include <limits>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

using namespace cleave;
using nn::detail::FileOperations;
using test::TemporaryFolder;
using Json = nlohmann::json;

namespace {

const char* const kManifest = "c/manifest.json";

}  // namespace

TEST_CASE("a manifest that lies is refused, with the reason") {
  TemporaryFolder folder;
  Tensor x = test::normal(1, {3, 5});
  nn::save_checkpoint(folder.path("c"), {.groups = {{"model", {{"x", x}}, {{"key", "value"}}}}});
  const std::string good = folder.read(kManifest);
  auto refused = [&](const std::string& text, const char* why) {
    CAPTURE(why);
    folder.write(kManifest, text);
    test::check_throws<FileError>([&] { nn::Checkpoint(folder.path("c")).verify(); }, {why});
    folder.write(kManifest, good);
  };
  auto edited = [&](const std::function<void(Json&)>& edit) {
    Json json = Json::parse(good);
    edit(json);
    return json.dump();
  };
  const char* const file = "model.safetensors";
  CHECK_NOTHROW(nn::Checkpoint(folder.path("c")).verify());
  refused(edited([](Json& j) { j["format"] = "cleave checkpoint 2"; }), "format");
  refused(edited([](Json& j) { j["chunk_bytes"] = 0; }), "chunk_bytes is 0");
  refused(edited([](Json& j) { j["chunk_bytes"] = -1; }), "no number of bytes");
  refused(edited([](Json& j) { j["chunk_bytes"] = std::numeric_limits<int64_t>::max(); }), "no number of bytes");
  refused(edited([&](Json& j) { j["files"][file]["bytes"] = 1.5; }), "no number of bytes");
  refused(edited([&](Json& j) { j["files"][file]["bytes"] = 100; }), "but 100 were written");
  refused(edited([&](Json& j) { j["files"][file]["tensors"]["x"]["xxh3"] = "0123456789abcdef"; }), "have its hash");
  refused(edited([&](Json& j) { j["files"][file]["tensors"]["x"]["xxh3"] = "0123456789abcde"; }), "is no hash");
  refused(edited([&](Json& j) { j["files"][file]["tensors"].erase("x"); }), "lacks the 1 hashes of x");
  for (const char* name : {"../c/model.safetensors", ".hidden", "a/b", ""})
    refused(edited([&](Json& j) { j["files"][name] = j["files"][file]; }), "no name of a file in this folder");
  refused(edited([&](Json& j) { j["groups"]["model"] = {file, file}; }), "in two files");
  refused(edited([&](Json& j) { j["groups"]["model"] = {"other.safetensors"}; }), "without a size");
  refused("{\"more\":1,\"more\":2," + good.substr(1), "stands twice");
  refused("{\"more\":" + std::string(80, '[') + std::string(80, ']') + "," + good.substr(1), "nested too deep");
  std::string path = std::string("c/") + file, bytes = folder.read(path), bad = bytes;
  bad.replace(bad.find("value"), 5, "other");
  folder.write(path, bad);
  refused(good, "the hash of its header");
}

TEST_CASE("an index that places a tensor where it is not") {
  TemporaryFolder folder;
  nn::save_safetensors(folder.path("a.safetensors"), {{"x", ones({2})}});
  folder.write("model.safetensors.index.json", "{\"weight_map\":{\"y\":\"a.safetensors\"}}");
  test::check_throws<FileError>([&] { nn::Checkpoint file(folder.path()); }, {"a.safetensors lacks the tensor y"});
}

TEST_CASE("tensors without bytes come back, and parts that just fit share a file") {
  TemporaryFolder folder;
  Tensor x = test::normal(1, {10}), y = test::normal(2, {10});
  nn::NamedTensors tensors = {{"none", zeros({0, 3})}, {"x", x}, {"y", y}};
  nn::save_checkpoint(folder.path("c"), {.groups = {{"model", tensors}}}, {.max_file_bytes = 160});
  CHECK(test::names(folder, "c") == std::vector<std::string>{"manifest.json", "model.safetensors", "state.json"});
  nn::Checkpoint file(folder.path("c"));
  file.verify();
  auto read = file.read("model", [](const auto&, const auto&) { return dist::Layout(); });
  CHECK(test::bytes_of(read) == test::bytes_of(tensors));
  CHECK(read[0].second.shape() == Shape{0, 3});
  nn::save_checkpoint(folder.path("d"), {.groups = {{"model", tensors}}}, {.max_file_bytes = 159});
  CHECK(test::names(folder, "d").size() == 5);
}

TEST_CASE("a truth value that is none is found before anything changes") {
  TemporaryFolder folder;
  nn::save_safetensors(folder.path("f"), {{"a", ones({3})}, {"b", zeros({2}, {.dtype = DType::boolean})}});
  std::string bytes = folder.read("f");
  bytes.back() = 2;
  folder.write("f", bytes);
  Tensor a = zeros({3}), b = zeros({2}, {.dtype = DType::boolean});
  test::check_throws<FileError>([&] { nn::Checkpoint(folder.path("f")).load({{"a", a}, {"b", b}}); }, {"the byte 2"});
  CHECK(equal(a, zeros({3})));
}

TEST_CASE("a backward through weights that a load has written since is an error") {
  TemporaryFolder folder;
  for (DType saved : {DType::f32, DType::f64}) {  // copied as they are, and converted
    nn::save_safetensors(folder.path("f"), {{"w", ones({3}, {.dtype = saved})}});
    Tensor w = zeros({3}, {.dtype = DType::f64}).set_requires_grad(true);
    Tensor loss = sum(square(w));
    nn::Checkpoint(folder.path("f")).load({{"w", w}});
    CHECK_THROWS_AS(loss.backward(), GradError);
  }
}

TEST_CASE("later steps of another course do not count for those that are kept") {
  TemporaryFolder folder;
  nn::CheckpointSeries series(folder.path("run"), {.keep = 2});
  for (int64_t step : {9, 3, 5, 6}) series.save(step, {.groups = {{"model", {{"x", ones({2})}}}}});
  CHECK(test::names(folder, "run") ==
        std::vector<std::string>{"latest", "step-00000005", "step-00000006", "step-00000009"});
}

TEST_CASE("what the system refuses is an error that names the file") {
  TemporaryFolder folder;
  FileOperations& files = FileOperations::system();
  int full = ::open("/dev/full", O_WRONLY), ends[2];
  REQUIRE(full >= 0);
  REQUIRE(pipe(ends) == 0);
  test::check_throws<FileError>([&] { files.write(full, "there", "text", 4, 0); }, {"there", "No space left"});
  test::check_throws<FileError>([&] { files.sync(ends[1], "there"); }, {"there cannot be written"});
  for (int file : {full, ends[0], ends[1]}) ::close(file);
  std::string path = folder.write("f", "12345");
  CHECK(nn::detail::read_text(path, 5) == "12345");
  test::check_throws<FileError>([&] { nn::detail::read_text(path, 4); }, {"has 5 bytes", "at most 4"});
}
