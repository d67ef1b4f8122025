// Sharding plans: patterns, TOML, and every way in which a plan does not fit.
#include "nn/support.h"

#include <cleave/nn/internal/names.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace cleave;
using namespace cleave::test;
using nn::ShardingPlan;

TEST_CASE("patterns: * is one segment, ** any number") {
  using nn::detail::matches;
  CHECK(matches("a.b", "a.b"));
  CHECK(matches("a.*", "a.b"));
  CHECK(!matches("a.*", "a"));
  CHECK(!matches("a.*", "a.b.c"));
  CHECK(!matches("*", ""));
  CHECK(matches("**", ""));
  CHECK(matches("**.w", "w"));
  CHECK(matches("**.w", "a.b.w"));
  CHECK(!matches("**.w", "a.w.b"));
  CHECK(matches("a.**.w", "a.w"));
  CHECK(matches("**.b.*.w", "x.b.b.c.w"));
  CHECK(!matches("a*", "ab"));  // a star stands for a whole segment
  CHECK(!nn::detail::is_pattern("a.b"));
  CHECK(nn::detail::is_pattern("a.**"));
}

TEST_CASE("edit distance and the nearest names") {
  CHECK(nn::detail::nearest("up.wieght", {"down.bias", "up.weight"}) == "; the nearest are up.weight, down.bias");
  CHECK(nn::detail::nearest("x", {}) == "; there are none");
}

TEST_CASE("TOML: text, lists and names, there and back") {
  ShardingPlan plan = ShardingPlan::parse(R"(
    [parameter]
    "up.weight" = "tp, -"
    "**.bias" = "tp => - => dp"   # a comment
    [forward]
    "input" = "dp, -"
    "blocks.*.output" = ["dp, -", "..."]
    "attn.input" = { x = "dp, -, -", mask = "..." }
  )");
  REQUIRE(plan.parameter.size() == 2);
  REQUIRE(plan.forward.size() == 3);
  CHECK(ShardingPlan::parse(to_string(plan)) == plan);
  ShardingPlan same{.parameter = {{"**.bias", "tp => - => dp"}, {"up.weight", "tp, -"}},
                    .forward = {{"attn.input", {{"mask", "..."}, {"x", "dp, -, -"}}},
                                {"blocks.*.output", {"dp, -", "..."}},
                                {"input", {"dp, -"}}}};
  CHECK(ShardingPlan::parse(to_string(same)) == plan);

  std::string path =
      (std::filesystem::temp_directory_path() / ("cleave_plan_" + std::to_string(getpid()) + ".toml")).string();
  plan.save(path);
  CHECK(ShardingPlan::load(path) == plan);
  std::ofstream(path) << "[parameter]\nx = 3\n";
  check_throws<PlanError>([&] { ShardingPlan::load(path); }, {path.c_str(), "line 2", "\"x\"", "text"});
  std::remove(path.c_str());
  check_throws<FileError>([&] { ShardingPlan::load(path); }, {path.c_str()});
}

TEST_CASE("TOML that is no plan") {
  check_throws<PlanError>([] { ShardingPlan::parse("[parameter"); }, {"line 1"});
  check_throws<PlanError>([] { ShardingPlan::parse("[parameters]\na = \"-\""); }, {"parameters", "[parameter]"});
  check_throws<PlanError>([] { ShardingPlan::parse("[parameter]\na = \"-\"\na = \"-\""); }, {"line 3"});
  check_throws<PlanError>([] { ShardingPlan::parse("[forward]\ninput = [1]"); }, {"line 2", "input", "text"});
  check_throws<PlanError>([] { ShardingPlan::parse("forward = 1"); }, {"forward", "table"});
  CHECK(ShardingPlan::parse("") == ShardingPlan{});
}

namespace {

struct Mask : nn::Module<Mask> {
  Mask(nn::ModuleBase* parent, std::string name) : Module(parent, name) {}
  static constexpr std::array inputs{"x", "mask"};
  Tensor forward(const Tensor& x, const Tensor& mask) const { return x * mask; }
};
struct Model : nn::Module<Model> {
  nn::Linear up{this, "up", 4, 6}, down{this, "down", 6, 4};
  nn::Parameter tied{this, "tied", up.weight};
  nn::Buffer table{this, "table", Shape{8}};
  nn::List<Mask> masks{this, "masks", 2};
  Tensor forward(const Tensor& x) const { return down(up(x)); }
};

template <class E>
void rejects(const ShardingPlan& plan, std::initializer_list<const char*> words) {
  on_ranks({2}, [&](dist::World& world) {
    Model model;
    check_throws<E>([&] { nn::shard(model, grid(world), plan); }, words);
    CHECK(!model.is_sharded());  // checked as a whole before anything changes
    CHECK(!model.up.weight.is_distributed());
  });
}

}  // namespace

TEST_CASE("parameters that the plan misnames or misplaces") {
  rejects<PlanError>({.parameter = {{"up.wieght", "tp, -"}}}, {"up.wieght", "nearest", "up.weight"});
  rejects<PlanError>({.parameter = {{"**.wight", "tp, -"}}}, {"**.wight", "no such parameter"});
  rejects<PlanError>({.parameter = {{"**.weight", "tp, -"}, {"up.*", "-, tp"}}},
                     {"**.weight", "up.*", "up.weight", "different"});
  rejects<PlanError>({.parameter = {{"up.weight", "tp, -"}, {"tied", "-, tp"}}}, {"up.weight", "tied", "different"});
  rejects<PlanError>({.parameter = {{"up.bias", "- => - => - => - => -"}}}, {"up.bias", "5 layouts"});
  rejects<LayoutError>({.parameter = {{"up.weight", "tp"}}}, {"up.weight", "f32[6, 4]", "1 dims", "2"});
  rejects<LayoutError>({.parameter = {{"up.weight", "tp, tp"}}}, {"up.weight", "twice"});
  rejects<LayoutError>({.parameter = {{"up.weight", "tq, -"}}}, {"up.weight", "tq", "dp, tp"});
  rejects<LayoutError>({.parameter = {{"up.weight", "-, - => tp"}}}, {"up.weight", "1 dims"});
  rejects<LayoutError>({.parameter = {{"up.bias", "- partial(tp)"}}}, {"up.bias", "partial"});
}

TEST_CASE("ports that the plan misnames or misplaces") {
  rejects<PlanError>({.forward = {{"up.inputs", {"dp, -"}}}}, {"up.inputs", "input"});
  rejects<PlanError>({.forward = {{"upp.input", {"dp, -"}}}}, {"upp.input", "up.input"});
  rejects<PlanError>({.forward = {{"masks.input", {"dp, -"}}}}, {"masks", "list", "masks.*.input"});
  rejects<PlanError>({.forward = {{"masks.*.input", {{"y", "dp, -"}}}}}, {"masks.0", "\"y\"", "x, mask"});
  rejects<PlanError>({.forward = {{"up.input", {{"x", "dp, -"}}}}}, {"up", "\"x\"", "position"});
  rejects<PlanError>({.forward = {{"up.output", {{"y", "dp, -"}}}}}, {"up.output", "position"});
  rejects<PlanError>({.forward = {{"masks.0.input", {{"x", "dp, -"}, {"x", "-, -"}}}}}, {"x", "twice"});
  rejects<PlanError>({.forward = {{"*.input", {"dp, -"}}, {"**.input", {"-, dp"}}}},
                     {"*.input", "**.input", "different"});
  rejects<LayoutError>({.forward = {{"up.input", {"dq, -"}}}}, {"up.input", "dq"});
}

TEST_CASE("an exact name beats a pattern, agreeing patterns are fine, the rest is replicated") {
  on_ranks({2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    Model model;
    nn::shard(model, mesh,
              {.parameter = {{"**.weight", "tp, -"}, {"*.weight", "tp, -"}, {"down.weight", "-, tp"}, {"table", "tp"}},
               .forward = {{"**.input", {"dp, -"}}, {"up.input", {"-, -"}}}});
    CHECK(to_string(model.up.weight.layout()) == "tp, -");
    CHECK(to_string(model.tied.layout()) == "tp, -");
    CHECK(to_string(model.down.weight.layout()) == "-, tp");
    CHECK(model.up.bias->layout().is_replicated());
    CHECK(to_string(model.table.tensor().layout()) == "tp");
    CHECK(to_string(model.up.input_layouts()[0].second) == "-, -");
    CHECK(to_string(model.down.input_layouts()[0].second) == "dp, -");
    CHECK(to_string(model.input_layouts()[0].second) == "dp, -");
    CHECK(model.parameters().size() == 4);
  });
}
