// Meshes and plans: how they are read, which belong together, and which errors say what to do.
#include "gpt/plans.h"

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/nn/shard.h>

#include <doctest/doctest.h>

#include <algorithm>

#include "apps/temporary_folder.h"
#include "gpt/explain.h"
#include "gpt/model.h"

using namespace gpt;
using namespace cleave;
using gpt::test::TemporaryFolder;

namespace {

const Config kSmall = completed({.layers = 2, .dim = 24, .heads = 6, .ffn = 50, .seq = 17});

std::string placed(int ranks, const std::string& mesh, const std::string& plan) {
  std::string out;
  dist::simulate(ranks, 0, [&](dist::World& world) {
    Placement p = place(world, kSmall, mesh, plan);
    out = p.mesh ? to_string(*p.mesh) + " " + p.name : "plain";
  });
  return out;
}

// The order in which a plan names things means nothing.
nn::ShardingPlan sorted(nn::ShardingPlan plan) {
  std::sort(plan.parameter.begin(), plan.parameter.end());
  std::sort(plan.forward.begin(), plan.forward.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return plan;
}

}  // namespace

TEST_CASE("meshes are read as axes with sizes") {
  auto axes = parse_mesh("dp=2,tp=16");
  REQUIRE(axes.size() == 2);
  CHECK(axes[0].name == "dp");
  CHECK(axes[0].size == 2);
  CHECK(axes[1].name == "tp");
  CHECK(axes[1].size == 16);
  for (const char* bad : {"", "dp", "dp=", "dp=0", "dp=2x", "dp=2,", "dp=-1", ",tp=2", "dp=2 tp=2", "dp=99999999999"})
    CHECK_THROWS_WITH_AS(parse_mesh(bad), doctest::Contains("--mesh"), ValueError);
}

TEST_CASE("mesh and plan name each other") {
  CHECK(placed(1, "", "") == "plain");
  CHECK(placed(1, "", "single") == "plain");
  CHECK(placed(4, "", "") == "mesh(dp=4) dp");
  CHECK(placed(4, "tp=4", "") == "mesh(tp=4) tp");
  CHECK(placed(4, "dp=2,tp=2", "") == "mesh(dp=2, tp=2) dp_tp");
  CHECK(placed(4, "", "tp_sp") == "mesh(tp=4) tp_sp");
  CHECK(placed(1, "tp=1", "tp") == "mesh(tp=1) tp");
  CHECK(placed(6, "tp=2,dp=3", "dp_tp_sp") == "mesh(tp=2, dp=3) dp_tp_sp");
}

TEST_CASE("what does not belong together is an error that says so") {
  CHECK_THROWS_WITH_AS(placed(2, "", "tp_ps"), doctest::Contains("the nearest ready ones are tp_sp"), ValueError);
  CHECK_THROWS_WITH_AS(placed(4, "", "dp_tp"), doctest::Contains("--mesh dp=2,tp=2"), ValueError);
  CHECK_THROWS_WITH_AS(placed(2, "", "single"), doctest::Contains("one rank"), ValueError);
  CHECK_THROWS_WITH_AS(placed(4, "dp=4", "tp"), doctest::Contains("axis tp, which mesh(dp=4) lacks"), ValueError);
  CHECK_THROWS_WITH_AS(placed(2, "x=2", ""), doctest::Contains("no axis dp or tp"), ValueError);
  CHECK_THROWS_WITH_AS(placed(3, "dp=2,tp=2", ""), doctest::Contains("4"), LayoutError);
}

TEST_CASE("a plan from a file must fit the model") {
  TemporaryFolder folder;
  CHECK(placed(2, "tp=2", folder.write("p.toml", "[parameter]\n\"token.weight\" = \"tp, -\"\n")) ==
        "mesh(tp=2) " + folder.path("p.toml"));
  CHECK_THROWS_WITH_AS(placed(2, "", folder.path("p.toml")), doctest::Contains("--mesh"), ValueError);
  CHECK_THROWS_AS(placed(2, "tp=2", folder.write("bad.toml", "[parameter\n")), PlanError);
  auto shard_by = [&](const std::string& text) {
    dist::simulate(2, 0, [&](dist::World& world) {
      Placement p = place(world, kSmall, "tp=2", folder.write("q.toml", text));
      Gpt model = nn::build<Gpt>({.device = Device::Meta, .deferred = true}, kSmall);
      nn::shard(model, *p.mesh, p.plan);
    });
  };
  CHECK_NOTHROW(shard_by("[parameter]\n\"blocks.*.mlp.up.weight\" = \"tp, -\"\n"));
  CHECK_THROWS_WITH_AS(shard_by("[parameter]\n\"tokens.weight\" = \"tp, -\"\n"), doctest::Contains("token.weight"),
                       PlanError);
  CHECK_THROWS_WITH_AS(shard_by("[forward]\n\"blocks.*.mpl.input\" = \"tp, -, -\"\n"), doctest::Contains("mlp"),
                       PlanError);
  CHECK_THROWS_WITH_AS(shard_by("[parameter]\n\"token.weight\" = \"tp, tp\"\n"), doctest::Contains("twice"),
                       LayoutError);
  CHECK_THROWS_WITH_AS(shard_by("[parameter]\n\"token.weight\" = \"pp, -\"\n"), doctest::Contains("pp"), LayoutError);
}

TEST_CASE("every ready plan fits every shape of model, and survives its text") {
  for (int64_t kv : {1, 2, 3, 6})
    for (bool tied : {false, true})
      for (const char* positions : {"learned", "rope"})
        for (const char* norm : {"layer", "rms"}) {
          Config config = completed({.vocab = 257,
                                     .layers = 2,
                                     .dim = 24,
                                     .heads = 6,
                                     .kv_heads = kv,
                                     .tied = tied,
                                     .positions = positions,
                                     .norm = norm});
          for (const std::string& name : ready_plans())
            for (std::string mesh : {"dp=2,tp=2", "dp=1,tp=4", "dp=3,tp=3"}) {
              if (name == "single") continue;
              if (name == "hsdp") mesh.replace(0, 2, "rep").replace(mesh.find("tp"), 2, "shard");
              CAPTURE(name);
              int ranks = parse_mesh(mesh)[0].size * parse_mesh(mesh)[1].size;
              dist::simulate(ranks, ranks - 1, [&](dist::World& world) {
                Placement p = place(world, config, mesh, name);
                CHECK(sorted(nn::ShardingPlan::parse(to_string(p.plan))) == sorted(p.plan));
                Gpt model = nn::build<Gpt>({.device = Device::Meta, .deferred = true}, config);
                CHECK_NOTHROW(nn::shard(model, *p.mesh, p.plan));
              });
            }
        }
}

TEST_CASE("gpt plan prints a plan that gpt train reads, and explains it") {
  PlanOptions o{.model = kSmall, .mesh = "dp=2,tp=2", .plan = "dp_tp_sp"};
  CHECK(nn::ShardingPlan::parse(plan_text(o)).parameter.size() > 5);
  o.explain = true;
  std::string text = plan_text(o);
  for (const char* words :
       {"blocks.0 to 1, each", "f32[256@tp, 24]", "reduce_scatter over tp", "sync_gradients", "f32[16@dp, 17@tp, 24]"})
    CHECK_MESSAGE(text.find(words) != std::string::npos, words);
  CHECK_NOTHROW(
      plan_text({.model = kSmall, .step = {.batch = 2048}, .mesh = "dp=256,tp=4", .plan = "", .explain = true}));
  CHECK_THROWS_AS(plan_text({.model = kSmall}), ValueError);
}
