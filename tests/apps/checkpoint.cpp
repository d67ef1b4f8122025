// Models as files: saved under any plan, read on one device, with the same bits.
#include "gpt/checkpoint.h"

#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/nn/checkpoint_series.h>
#include <cleave/nn/shard.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>

#include <doctest/doctest.h>

#include "apps/temporary_folder.h"
#include "gpt/plans.h"

using namespace gpt;
using namespace cleave;
using gpt::test::TemporaryFolder;

namespace {

const Config kConfig =
    completed({.vocab = 13, .layers = 2, .dim = 40, .heads = 5, .kv_heads = 1, .ffn = 50, .seq = 17});

void save(const std::string& path, const Config& config, int ranks, const std::string& mesh, const std::string& plan) {
  dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
    seed(11);
    Gpt model = nn::build<Gpt>({.dtype = DType::f64, .deferred = true}, config);
    Placement p = place(world, config, mesh, plan);
    if (p.mesh)
      nn::shard(model, *p.mesh, p.plan);
    else
      nn::materialize(model);
    save_model(model, path);
  });
}

}  // namespace

TEST_CASE("a model saved under any plan has the bytes of one device, and is read there") {
  TemporaryFolder folder;
  for (bool tied : {false, true}) {
    Config config = kConfig;
    config.tied = tied;
    save(folder.path("one"), config, 1, "", "");
    save(folder.path("tp"), config, 4, "tp=4", "tp");
    save(folder.path("both"), config, 4, "dp=2,tp=2", "dp_tp_sp");
    CHECK(folder.read("tp") == folder.read("one"));
    CHECK(folder.read("both") == folder.read("one"));
    auto model = load_model(folder.path("tp"));
    CHECK(model->config == config);
    seed(11);
    Gpt other = nn::build<Gpt>({.dtype = DType::f64}, config);
    for (auto& [name, p] : other.named_parameters()) CHECK(equal(p.tensor(), model->parameter(name).tensor()));
  }
}

TEST_CASE("a file whose tensors are not those of its description is refused") {
  TemporaryFolder folder;
  save(folder.path("good"), kConfig, 1, "", "");
  nn::SafetensorsFile good(folder.path("good"));
  std::map<std::string, Tensor> all;
  for (const auto& e : good.entries()) all.emplace(e.name, good.read(e.name));
  auto refused = [&](const std::map<std::string, Tensor>& tensors, const nn::Metadata& metadata, const char* why) {
    nn::save_safetensors(folder.path("bad"), {tensors.begin(), tensors.end()}, metadata);
    CHECK_THROWS_WITH_AS(load_model(folder.path("bad")), doctest::Contains(why), FileError);
  };
  refused(all, {}, "description");
  refused({}, good.metadata(), "holds no tensors");
  auto tensors = all;
  tensors.erase("norm.weight");
  refused(tensors, good.metadata(), "lacks 1 of the model's tensors, the first is norm.weight");
  tensors.emplace("norm.wait", ones({40}, {.dtype = DType::f64}));
  refused(tensors, good.metadata(), "norm.wait");
  tensors = all;
  tensors["norm.weight"] = ones({41}, {.dtype = DType::f64});
  refused(tensors, good.metadata(), "needs f64[40]");
  tensors = all;
  tensors["new"] = ones({1});
  refused(tensors, good.metadata(), "new");
}

TEST_CASE("a model in a folder, and the newest of a folder of checkpoints") {
  TemporaryFolder folder;
  save(folder.path("one"), kConfig, 1, "", "");
  save(folder.path("model/"), kConfig, 4, "dp=2,tp=2", "dp_tp_sp");
  auto one = load_model(folder.path("one")), model = load_model(folder.path("model"));
  for (auto& [name, p] : one->named_parameters()) CHECK(equal(p.tensor(), model->parameter(name).tensor()));
  nn::CheckpointSeries series(folder.path("run"));
  series.save(3, {.groups = {model_group(*model)}});
  CHECK(load_model(folder.path("run"))->config == kConfig);
  CHECK_NOTHROW(require_writable(folder.path("model")));
}

TEST_CASE("whether a file can be written is known before training") {
  TemporaryFolder folder;
  CHECK_NOTHROW(require_writable(folder.path("model")));
  CHECK_THROWS_AS(require_writable(folder.path("no/model")), FileError);
  folder.write("other", "things");
  CHECK_THROWS_AS(require_writable(folder.path()), FileError);
}
