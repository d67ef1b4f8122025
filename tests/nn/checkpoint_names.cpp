// Which tensor of a file goes into which of a model: strictness, renames, ties, dtypes, files of others.
#include "nn/checkpoint_support.h"

using namespace cleave;
using test::Model;
using test::TemporaryFolder;

namespace {

nn::NamedTensors prefixed(const Model& model, const std::string& prefix) {
  nn::NamedTensors out;
  for (const auto& [name, x] : nn::named_tensors(model)) out.emplace_back(prefix + name, x);
  return out;
}

struct Two {
  TemporaryFolder folder;
  Model saved = nn::build<Model>({.dtype = DType::f32}), model = nn::build<Model>({.dtype = DType::f32});
  std::string path = folder.path("f.safetensors");
  void save(const nn::NamedTensors& tensors) { nn::save_safetensors(path, tensors); }
  bool same() const { return test::bytes_of(nn::named_tensors(saved)) == test::bytes_of(nn::named_tensors(model)); }
};

}  // namespace

TEST_CASE("missing, unexpected and misshapen tensors are named, with the nearest, and nothing changes") {
  Two t;
  auto tensors = nn::named_tensors(t.saved);
  auto before = test::bytes_of(nn::named_tensors(t.model));
  auto refused = [&](const nn::NamedTensors& list, std::initializer_list<const char*> words) {
    t.save(list);
    std::string message = test::message_of<FileError>([&] { nn::load_checkpoint(t.path, t.model); });
    CAPTURE(message);
    for (std::string word : words) CHECK(message.find(word) != std::string::npos);
    CHECK(test::bytes_of(nn::named_tensors(t.model)) == before);
  };
  auto less = tensors;
  std::erase_if(less, [](const auto& x) { return x.first == "up.weight"; });
  less.emplace_back("up.wait", ones({15, 6}));
  refused(less, {"lacks 1", "up.weight", "up.wait"});
  auto more = tensors;
  more.emplace_back("up.bia", ones({2}));
  refused(more, {"1 tensors that the model lacks", "up.bia", "up.bias"});
  auto other = tensors;
  for (auto& [name, x] : other)
    if (name == "small") x = ones({2, 3});
  refused(other, {"small is f32[2, 3]", "needs f32[3, 2]"});
  t.save(less);
  nn::LoadReport report = nn::load_checkpoint(t.path, t.model, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"up.weight"});
  CHECK(report.unexpected == std::vector<std::string>{"up.wait"});
  CHECK(equal(t.model.down.weight.tensor(), t.saved.down.weight.tensor()));
  Model deferred = nn::build<Model>({.deferred = true});
  test::check_throws<ValueError>([&] { nn::load_checkpoint(t.path, deferred, {.strict = false}); },
                                 {"deferred", "shard"});
}

TEST_CASE("renames with captures, in the order given") {
  Two t;
  t.save(prefixed(t.saved, "transformer.h."));
  nn::load_checkpoint(t.path, t.model, {.renames = {{"transformer\\.h\\.(.*)", "$1"}, {".*", "never"}}});
  CHECK(t.same());
  test::check_throws<ValueError>(
      [&] {
        nn::load_checkpoint(t.path, t.model, {.renames = {{"transformer.*", "one"}}});
      },
      {"both become one"});
  test::check_throws<ValueError>(
      [&] {
        nn::load_checkpoint(t.path, t.model, {.renames = {{"(", ""}}});
      },
      {"no regular expression"});
}

TEST_CASE("a tied tensor is saved under one name or all, and found under any") {
  Two t;
  CHECK(nn::named_tensors(t.saved, nn::TiedNames::all).size() == nn::named_tensors(t.saved).size() + 1);
  t.save(nn::named_tensors(t.saved, nn::TiedNames::all));
  CHECK(nn::SafetensorsFile(t.path).find("head") != nullptr);
  nn::load_checkpoint(t.path, t.model);
  CHECK(t.same());
  auto tensors = nn::named_tensors(t.saved);
  fill_(t.model.small.tensor().detach(), 0);
  for (auto& [name, x] : tensors)
    if (name == "embed.weight") name = "head";
  t.save(tensors);
  nn::load_checkpoint(t.path, t.model);
  CHECK(t.same());
  tensors.emplace_back("embed.weight", zeros({13, 6}));
  t.save(tensors);
  test::check_throws<FileError>([&] { nn::load_checkpoint(t.path, t.model); }, {"are one tensor in the model"});
}

TEST_CASE("dtypes: conversions that keep values are made, others asked for") {
  TemporaryFolder folder;
  std::string path = folder.path("f");
  NoGrad off;
  Tensor x = test::normal(1, {7}, DType::f64), half = cast(x, DType::bf16);
  auto into = [&](const Tensor& source, DType dtype, bool cast_too) {
    nn::save_safetensors(path, {{"x", source}});
    Tensor target = zeros({7}, {.dtype = dtype});
    nn::Checkpoint(path).load({{"x", target}}, {.cast = cast_too});
    return target;
  };
  CHECK(equal(into(half, DType::f32, false), cast(half, DType::f32)));
  CHECK(equal(into(cast(x, DType::f32), DType::f64, false), cast(cast(x, DType::f32), DType::f64)));
  for (auto [source, to] : {std::pair{DType::f64, DType::f32},
                            {DType::f32, DType::bf16},
                            {DType::bf16, DType::f16},
                            {DType::f16, DType::bf16}}) {
    test::check_throws<DTypeError>([&] { into(cast(x, source), to, false); }, {".cast = true"});
    CHECK(equal(into(cast(x, source), to, true), cast(cast(x, source), to)));
  }
  test::check_throws<DTypeError>([&] { into(cast(x, DType::i64), DType::f64, true); }, {"i64[7]", "f64"});
  test::check_throws<DTypeError>([&] { into(x, DType::i64, true); }, {"f64[7]", "i64"});
}

TEST_CASE("matrices that the file holds transposed") {
  TemporaryFolder folder;
  Tensor w = test::normal(1, {13, 6}), square = test::normal(2, {5, 5});
  nn::save_safetensors(folder.path("f"), {{"h.0.w", transpose(w, 0, 1)}, {"h.1.w", transpose(square, 0, 1)}, {"b", w}});
  test::on_ranks({1, 2, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = test::grid(world);
    NoGrad off;
    auto target = [&](const Shape& shape, const char* layout) {
      return dist::distribute(zeros(shape, {.dtype = DType::f64}), mesh.layout(layout));
    };
    nn::NamedTensors into = {
        {"h.0.w", target({13, 6}, "tp, dp")}, {"h.1.w", target({5, 5}, "-, tp")}, {"b", target({13, 6}, "dp, -")}};
    nn::Checkpoint(folder.path("f")).load(into, {.transposed = {"h.*.w"}});
    CHECK(equal(dist::full_tensor(into[0].second), w));
    CHECK(equal(dist::full_tensor(into[1].second), square));
    CHECK(equal(dist::full_tensor(into[2].second), w));
  });
}

TEST_CASE("what is asked for by a wrong name: the nearest is told, and a square matrix is not loaded as it stands") {
  TemporaryFolder folder;
  Tensor w = test::normal(1, {5, 5}), into = zeros({5, 5}, {.dtype = DType::f64});
  nn::save_checkpoint(folder.path("c"), {.groups = {{"model", {{"h.0.w", w}}}}, .values = {{"step", int64_t{1}}}});
  nn::Checkpoint file(folder.path("c"));
  test::check_throws<ValueError>(
      [&] {
        file.load(nn::NamedTensors{{"h.0.w", into}}, {.transposed = {"h.*.v"}});
      },
      {"transposed", "h.*.v", "h.0.w"});
  CHECK(equal(into, zeros({5, 5}, {.dtype = DType::f64})));
  test::check_throws<FileError>([&] { file.integer("stpe"); }, {"stpe", "the only one is step"});
  test::check_throws<FileError>([&] { nn::Checkpoint(nn::find_latest(folder.path("none")).folder); }, {"find_latest"});
}

TEST_CASE("folders of others: one file, an index; names that lead elsewhere are refused") {
  Two t;
  std::filesystem::create_directories(t.folder.path("hf"));
  auto all = nn::named_tensors(t.saved);
  nn::NamedTensors a(all.begin(), all.begin() + 3), b(all.begin() + 3, all.end());
  nn::save_safetensors(t.folder.path("hf/a.safetensors"), a);
  test::check_throws<FileError>([&] { nn::load_checkpoint(t.folder.path("hf"), t.model); }, {"lacks"});
  nn::save_safetensors(t.folder.path("hf/b.safetensors"), b);
  test::check_throws<FileError>([&] { nn::load_checkpoint(t.folder.path("hf"), t.model); }, {"2 other safetensors"});
  std::string map;
  for (const auto& [name, x] : a) map += "\"" + name + "\":\"a.safetensors\",";
  for (const auto& [name, x] : b) map += "\"" + name + "\":\"b.safetensors\",";
  map.pop_back();
  auto index = [&](const std::string& text) { t.folder.write("hf/model.safetensors.index.json", text); };
  index("{\"metadata\":{},\"weight_map\":{" + map + "}}");
  nn::load_checkpoint(t.folder.path("hf"), t.model);
  CHECK(t.same());
  nn::load_checkpoint(t.folder.path("hf/model.safetensors.index.json"), t.model);
  for (const char* bad : {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", "{\"weight_map\":{\"x\":\"/etc/passwd\"}}",
                          "{\"weight_map\":{\"x\":\"a.safetensors\"}}", "{\"weight_map\":3}", "[",
                          "{\"weight_map\":{},\"weight_map\":{}}", "{}"}) {
    CAPTURE(bad);
    index(bad);
    CHECK_THROWS_AS(nn::load_checkpoint(t.folder.path("hf"), t.model), FileError);
  }
}

TEST_CASE("a search: the pointer, else the newest that is complete, and why others are not") {
  TemporaryFolder folder;
  std::string root = folder.path("run");
  CHECK(nn::find_latest(root).folder.empty());
  nn::CheckpointSeries series(root, {.keep = 0});
  CHECK(nn::find_latest(root).folder.empty());
  for (int64_t step : {1, 2, 30})
    series.save(step, {.groups = {{"model", {{"x", full({50}, static_cast<double>(step))}}}}});
  CHECK(nn::find_latest(root).step == 30);
  folder.write("run/latest", "step-00000002\n");
  CHECK(nn::find_latest(root).step == 2);
  for (const char* broken : {"", "step-00000099\n", "../elsewhere\n", "step-2\n"}) {
    folder.write("run/latest", broken);
    CHECK(nn::find_latest(root).step == 30);
    CHECK(nn::find_latest(root).skipped.size() == 1);
  }
  std::filesystem::remove(folder.path("run/latest"));
  std::filesystem::copy(folder.path("run/step-00000001"), folder.path("run/step-99"));  // no name of ours
  std::string bytes = folder.read("run/step-00000030/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder.write("run/step-00000030/model.safetensors", bytes);
  std::filesystem::remove(folder.path("run/step-00000002/manifest.json"));
  CHECK(nn::find_latest(root).step == 30);  // its sizes are right
  test::on_ranks({1, 3}, [&](dist::World&) {
    nn::FoundCheckpoint found = nn::find_latest(root, true);
    CHECK(found.step == 1);
    REQUIRE(found.skipped.size() == 3);
    CHECK(found.skipped[1].find("step-00000030: ") != std::string::npos);
    CHECK(found.skipped[1].find("damaged") != std::string::npos);
    CHECK(found.skipped[2].find("step-00000002: ") != std::string::npos);
  });
  CHECK_THROWS_AS(nn::CheckpointSeries(root, {.keep = -1}), ValueError);
  CHECK_THROWS_AS(series.save(-1, {}), ValueError);
  CHECK_THROWS_AS(nn::CheckpointSeries(folder.write("file", "x")), FileError);
}
