// Checkpoints: whatever mesh and layouts they were saved from, the bytes are those of one device, and any mesh loads
// them.
#include "nn/checkpoint_training.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE(
    "saved at 1 to 4 ranks under any plan and loaded at every other: the bits stay, of parameters, moments, steps") {
  TemporaryFolder folder;
  save_first(folder.path("first"));
  auto first = contents(folder, "first");
  CHECK(first.size() == 4);
  for (int n : {1, 2, 3, 4})
    for (Plan plan : kPlans) {
      CAPTURE(n);
      CAPTURE(plan);
      std::string name = "saved" + std::to_string(n) + std::to_string(plan);
      dist::run_ranks({.ranks = n}, [&](dist::World& world) {
        Training t(world, plan, 7);
        load(t, folder.path("first"));
        nn::save_checkpoint(folder.path(name), t.content());
      });
      // Equal bytes of all files: loading at n ranks is right, and so is saving; the manifest's hashes are the same.
      CHECK(contents(folder, name) == first);
    }
}

TEST_CASE("a checkpoint of 4 ranks goes on at 1, 2, 3, 5 and 6, with its step count and moments") {
  TemporaryFolder folder;
  std::vector<double> loss;
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    seed(1);
    Training t(world, zero3, 1);
    t.step();
    nn::save_checkpoint(folder.path("four"), t.content());
  });
  auto continued = [&](int n, Plan plan) {
    std::map<std::string, std::vector<double>> out;
    dist::run_ranks({.ranks = n}, [&](dist::World& world) {
      Training t(world, plan, 9);
      load(t, folder.path("four"));
      t.step();
      for (auto& [name, p] : t.model.named_parameters()) {
        auto values = to_vector<double>(p.tensor());
        if (world.rank() == 0) out[name] = values;
      }
    });
    return out;
  };
  auto one = continued(1, plain);
  for (int n : {1, 2, 3, 5, 6}) {
    CAPTURE(n);
    for (const auto& [name, values] : continued(n, n == 6 ? tp_zero3 : zero3))
      for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == doctest::Approx(one[name][i]).epsilon(1e-12));
  }
}

TEST_CASE("two steps, a checkpoint and two steps are four steps, bit by bit") {
  TemporaryFolder folder;
  for (int n : {1, 2, 4}) {
    dist::run_ranks({.ranks = n}, [&](dist::World& world) {
      seed(2);
      Training whole(world, tp_zero3, 1);
      for (int i = 0; i < 2; ++i) whole.step();
      nn::save_checkpoint(folder.path("mid"), whole.content());
      for (int i = 0; i < 2; ++i) whole.step();
      nn::save_checkpoint(folder.path("whole"), whole.content());
      Training resumed(world, tp_zero3, 9);
      load(resumed, folder.path("mid"));
      for (int i = 0; i < 2; ++i) resumed.step();
      nn::save_checkpoint(folder.path("resumed"), resumed.content());
    });
    CHECK(contents(folder, "resumed") == contents(folder, "whole"));
  }
}

TEST_CASE("files above the limit are numbered, with an index, and are read with and without our manifest") {
  TemporaryFolder folder;
  save_first(folder.path("first"));
  dist::run_ranks({.ranks = 3}, [&](dist::World& world) {
    Training t(world, zero3, 7);
    load(t, folder.path("first"));
    nn::save_checkpoint(folder.path("parts"), t.content(), {.max_file_bytes = 700});
    Training again(world, tp, 8);
    load(again, folder.path("parts"));
    nn::save_checkpoint(folder.path("whole"), again.content());
  });
  CHECK(contents(folder, "whole") == contents(folder, "first"));
  auto files = contents(folder, "parts");
  CHECK(files.count("model-00001-of-00005.safetensors") == 1);
  CHECK(files.count("model.safetensors.index.json") == 1);
  CHECK(files.count("optimizer.safetensors.index.json") == 1);
  int64_t total = 0;
  for (const auto& [name, x] : nn::named_tensors(nn::build<Model>({.dtype = DType::f64}), nn::TiedNames::first))
    total += numel(x.shape()) * size_of(x.dtype());
  CHECK(files["model.safetensors.index.json"].find("\"total_size\": " + std::to_string(total) + "\n") !=
        std::string::npos);
  std::filesystem::remove(folder.path("parts/manifest.json"));
  nn::Checkpoint bare(folder.path("parts"));
  CHECK(!bare.has_manifest());
  auto model = nn::build<Model>({.dtype = DType::f64});
  bare.load(model);
  nn::save_checkpoint(folder.path("bare"), {.groups = {{"model", nn::named_tensors(model)}}});
  CHECK(folder.read("bare/model.safetensors") == folder.read("first/model.safetensors"));
}

TEST_CASE("partial tensors, tensors of a part of the mesh, empty blocks and scalars") {
  TemporaryFolder folder;
  Tensor big = test::normal(4, {700, 5}), three = test::normal(5, {3, 2});
  nn::save_checkpoint(folder.path("one"),
                      {.groups = {{"model", {{"big", big}, {"three", three}, {"sum", three}, {"n", full({}, 4)}}}}});
  for (int n : {2, 4})
    dist::run_ranks({.ranks = n}, [&](dist::World& world) {
      dist::DeviceMesh all(world, {{"r", n}}), last(world, {{"r", 1}}, {n - 1}), two(world, {{"s", 2}}, {n - 1, 0});
      Tensor split = dist::distribute(clone(big), all.layout("-, r"));  // runs of a few bytes
      Tensor partial =
          dist::redistribute(dist::distribute(clone(three), all.layout("-, -")), all.layout("-, - partial(r)"));
      nn::NamedTensors tensors = {{"big", split},
                                  {"three", dist::distribute(clone(three), two.layout("s, -"))},
                                  {"sum", partial},
                                  {"n", dist::distribute(full({}, 4), last.layout(""))}};
      nn::save_checkpoint(folder.path("many"), {.groups = {{"model", tensors}}});
      nn::Checkpoint file(folder.path("many"));
      file.verify();
      auto read = file.read("model", [&](const std::string& name, const TensorType&) {
        return name == "three" ? two.layout("-, s") : name == "big" ? all.layout("r, -") : dist::Layout();
      });
      CHECK(equal(dist::full_tensor(read[0].second), big));
      CHECK(read[3].first == "three");
      if (two.contains_self()) CHECK(equal(dist::full_tensor(read[3].second), three));
      NoGrad off;
      Tensor target = dist::distribute(zeros({3, 2}, {.dtype = DType::f64}), last.layout("r, -"));
      file.load({{"three", target}}, {.strict = false});
      if (last.contains_self()) CHECK(equal(target.local(), three));
    });
  CHECK(contents(folder, "many") == contents(folder, "one"));
}

TEST_CASE("a damaged byte is found before anything changes, on all ranks, wherever it lies") {
  TemporaryFolder folder;
  save_first(folder.path("first"));
  const std::string good = folder.read("first/model.safetensors");
  for (const char* name : {"model.safetensors", "state.json", "manifest.json", "optimizer.safetensors"})
    for (size_t from_end : {1, 40, 300}) {
      std::string path = std::string("first/") + name, bytes = folder.read(path), bad = bytes;
      if (from_end > bytes.size()) continue;
      bad[bytes.size() - from_end] ^= 1;
      folder.write(path, bad);
      CAPTURE(path);
      dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
        Training t(world, zero3, 7);
        auto before = test::bytes_of(nn::named_tensors(t.model));
        bool thrown = false;
        try {
          load(t, folder.path("first"));
          nn::Checkpoint(folder.path("first")).verify();
        } catch (const FileError& e) { thrown = true; }
        CHECK((thrown || std::string_view(name) == "manifest.json"));  // there a space may change unnoticed
        if (thrown) CHECK(test::bytes_of(nn::named_tensors(t.model)) == before);
      });
      folder.write(path, bytes);
    }
}

TEST_CASE("several threads of a rank verify and copy: the same bits, the same first fault") {
  TemporaryFolder folder;
  const int64_t rows = 1031, columns = 1500;  // more than a thread's share at a time, and no multiple of it
  NamedTensors saved;
  for (int i = 0; i < 3; ++i) saved.emplace_back("x" + std::to_string(i), test::normal(i + 1, {rows, columns}));
  nn::save_checkpoint(folder.path("c"), {.groups = {{"model", saved}}});
  auto expected = test::bytes_of(saved);
  auto load = [&](const char* layout, bool good) {
    dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
      set_num_threads(3);
      dist::DeviceMesh mesh(world, {{"r", 2}});
      NamedTensors x;
      for (const auto& item : saved)
        x.emplace_back(item.first,
                       dist::distribute(zeros({rows, columns}, {.dtype = item.second.dtype()}), mesh.layout(layout)));
      auto zero = test::bytes_of(x);
      nn::Checkpoint file(folder.path("c"));
      auto read = [&] { return file.read("model", [&](const auto&, const auto&) { return mesh.layout(layout); }); };
      if (good) {
        file.load(x);
        CHECK(test::bytes_of(x) == expected);
        CHECK(test::bytes_of(read()) == expected);
        CHECK_NOTHROW(file.verify());
        return;
      }
      for (auto&& f : std::initializer_list<std::function<void()>>{[&] { file.load(x); }, read, [&] { file.verify(); }})
        test::check_throws<FileError>(f, {"x1 is not what was written, in its bytes 2097152 to 3145728"});
      CHECK(test::bytes_of(x) == zero);
    });
  };
  for (const char* layout : {"r, -", "-, r", "-, -"}) load(layout, true);
  std::string path = "c/model.safetensors", bytes = folder.read(path);
  size_t each = expected["x0"].size(), end = bytes.size();
  for (size_t at : {end - 1, end - 2 * each + (size_t{5} << 19)}) bytes[at] ^= 1;  // both ranks' columns, x2 and x1
  folder.write(path, bytes);
  for (const char* layout : {"-, r", "-, -", "r, -"}) load(layout, false);  // the last: one fault on each rank
}

TEST_CASE("values of all kinds come back; ranks that differ are told") {
  TemporaryFolder folder;
  double inf = std::numeric_limits<double>::infinity(), odd = 0.1 + 0.2;
  nn::save_checkpoint(folder.path("c"), {.groups = {},
                                         .values = {{"i", INT64_MIN},
                                                    {"d", odd},
                                                    {"one", 1.0},
                                                    {"inf", -inf},
                                                    {"nan", std::nan("")},
                                                    {"t", std::string("ü \"x\"\n")}}});
  nn::Checkpoint file(folder.path("c"));
  CHECK(file.integer("i") == INT64_MIN);
  CHECK(file.number("d") == odd);
  CHECK(file.number("one") == 1.0);
  CHECK(file.number("inf") == -inf);
  CHECK(std::isnan(file.number("nan")));
  CHECK(file.text("t") == "ü \"x\"\n");
  CHECK_THROWS_AS(file.integer("d"), FileError);
  CHECK_THROWS_AS(file.text("none"), FileError);
  test::on_ranks({2}, [&](dist::World& world) {
    test::check_throws<ValueError>(
        [&] {
          nn::save_checkpoint(folder.path("d"), {.groups = {}, .values = {{"r", int64_t{world.rank()}}}});
        },
        {"rank 1"});
    Tensor own = full({3}, world.rank());  // plain: all ranks are to hold the same
    test::check_throws<ValueError>(
        [&] {
          nn::save_checkpoint(folder.path("d"), {.groups = {{"model", {{"x", own}}}}});
        },
        {"rank 1"});
  });
  test::check_throws<ValueError>(
      [&] {
        nn::save_checkpoint(folder.path("d"), {.groups = {{"model", {{"x", {}}}}}});
      },
      {"x is undefined"});
  CHECK(!std::filesystem::exists(folder.path("d")));
}
