// ZeRO stages, hybrid sharding, and both with tensor parallelism: the training of one device.
#include "nn/zero_support.h"

#include <map>

using namespace cleave;
using namespace cleave::test;

namespace {

std::vector<ZeroCase> cases(int ranks) {
  std::vector<ZeroCase> out;
  for (int stage = 0; stage <= 3; ++stage)
    out.push_back({"stage " + std::to_string(stage), {{"dp", ranks}}, stage, {"dp"}, "dp"});
  out.push_back({"stage 3, small ones whole", {{"dp", ranks}}, 3, {"dp"}, "dp", false, 6});
  if (ranks != 4) return out;
  std::vector<dist::MeshAxis> two = {{"rep", 2}, {"shard", 2}}, tp = {{"shard", 2}, {"tp", 2}};
  for (int stage = 1; stage <= 3; ++stage) {
    out.push_back({"hybrid, stage " + std::to_string(stage), two, stage, {"shard"}, "rep.shard"});
    out.push_back({"with tp, stage " + std::to_string(stage), tp, stage, {"shard"}, "shard", true});
  }
  out.push_back({"over both axes", two, 3, {"rep", "shard"}, "rep.shard"});
  return out;
}

struct Wide : nn::Module<Wide> {
  nn::Linear up{this, "up", 8, 16}, down{this, "down", 16, 8};
  Tensor forward(const Tensor& x) const { return down(tanh(up(x))); }
};

struct Outcome {
  double norm = 0;
  Values parameters;
  std::vector<dist::CommEvent> events;
};

// One step of SGD on one batch; `bucket` < 0: the default.
Outcome one_step(const ZeroCase& c, dist::World* world, int64_t bucket = -1) {
  seed(4);
  auto net = nn::build<Wide>({.dtype = DType::f64});
  std::optional<dist::DeviceMesh> mesh;
  if (world) {
    mesh.emplace(*world, c.axes);
    nn::shard(net, *mesh, plan_of(c, net, *mesh));
  }
  int64_t before = autograd::bucket_bytes();
  if (bucket >= 0) autograd::set_bucket_bytes(bucket);
  Outcome out;
  dist::record_collectives(true);
  Tensor x = normal(5, {8, 8});
  mean(square(net(mesh ? dist::distribute(x, mesh->layout(c.batch + ", ...")) : x))).backward();
  out.events = dist::recorded_collectives();
  dist::record_collectives(false);
  out.norm = optim::grad_norm(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  opt.step();
  autograd::set_bucket_bytes(before);
  for (const nn::Parameter& p : net.parameters()) out.parameters.push_back(to_vector<double>(p.tensor()));
  return out;
}

std::vector<dist::CommEvent> only(const std::vector<dist::CommEvent>& events, dist::CollectiveKind kind,
                                  const std::string& axis) {
  std::vector<dist::CommEvent> out;
  for (const dist::CommEvent& e : events)
    if (e.kind == kind && e.axis == axis) out.push_back(e);
  return out;
}

}  // namespace

namespace {

struct Part : nn::Module<Part> {
  nn::Parameter weight{this, "weight", {6, 4}}, bias{this, "bias", {4}};
  Part(nn::ModuleBase* parent, std::string name) : Module(parent, std::move(name)) {}
};
struct Parts : nn::Module<Parts> {
  nn::List<Part> blocks{this, "blocks", 2};
  nn::Parameter gathered{this, "gathered", {4, 8}}, odd{this, "odd", {3, 5}}, long_one{this, "long_one", {5, 9}},
      equal{this, "equal", {3, 3}};
  nn::Buffer split{this, "split", {4}}, whole{this, "whole", {4}};
};

}  // namespace

TEST_CASE("what a stage splits further, and over which dim; groups that agree have one line") {
  on_ranks({4}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    Parts model;
    nn::ShardingPlan plan{.parameter = {{"blocks.*.weight", "tp, -"},
                                        {"blocks.1.bias", "tp"},
                                        {"gathered", "-, tp => -, -"},
                                        {"long_one", "-, tp"},
                                        {"split", "tp"}}};
    using Lines = std::map<std::string, std::string>;
    auto lines = [&](const nn::ZeroOptions& options) {
      auto list = nn::zero(model, mesh, plan, options).parameter;
      return Lines(list.begin(), list.end());
    };
    // 6 rows over tp and dp are no four equal blocks, 4 columns over dp are; 5 divide by nothing, but are the longest.
    CHECK(lines({.stage = 1}) == Lines{{"blocks.*.weight", "tp, - => tp, - => tp, - => tp, dp"},
                                       {"blocks.0.bias", "- => - => - => dp"},
                                       {"blocks.1.bias", "tp => tp => tp => tp.dp"},
                                       {"gathered", "-, tp => -, - => -, tp => dp, tp"},
                                       {"odd", "-, - => -, - => -, - => -, dp"},
                                       {"long_one", "-, tp => -, tp => -, tp => dp, tp"},
                                       {"equal", "-, - => -, - => -, - => dp, -"},
                                       {"split", "tp"}});
    CHECK(lines({.stage = 2})["gathered"] == "-, tp => -, - => dp, tp");
    CHECK(lines({.stage = 3})["gathered"] == "dp, tp => -, -");
    CHECK(lines({.stage = 3, .whole_below = 15})["odd"] == "-, dp => -, -");  // it has 15 elements
    CHECK(lines({.stage = 3, .whole_below = 16})["odd"] == "-, - => -, - => -, dp");
    test::check_throws<LayoutError>([&] { lines({.stage = 3, .axes = {"tp"}}); }, {"is stored over tp already"});
    test::check_throws<ValueError>([&] { lines({.stage = 4}); }, {"stage is 4"});
    // Over both axes: 6 rows divide by 2, not by 4.
    plan = {};
    CHECK(lines({.stage = 3, .axes = {"dp", "tp"}})["blocks.*.weight"] == "-, dp.tp => -, -");
  });
}

TEST_CASE("ten steps of AdamW in every stage are those of one device") {
  for (int micro_batches : {1, 3}) {
    CAPTURE(micro_batches);
    Values want = train_odd({}, nullptr, micro_batches, 10);
    on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
      for (const ZeroCase& c : cases(world.size())) {
        CAPTURE(c.name);
        CHECK(relative_distance(train_odd(c, &world, micro_batches, 10), want) < 1e-10);
      }
    });
  }
}

TEST_CASE("replicas of what is used and stored have the same bits in every stage") {
  on_ranks({4}, [](dist::World& world) {
    for (const ZeroCase& c : cases(4)) {
      CAPTURE(c.name);
      Values mine = train_odd(c, &world, 1, 3);
      std::vector<double> flat;
      for (const auto& v : mine) flat.insert(flat.end(), v.begin(), v.end());
      dist::DeviceMesh mesh(world, {{"all", 4}});
      auto n = static_cast<int64_t>(flat.size());
      Tensor all = dist::from_local(tensor(flat, {1, n}), mesh.layout("all, -"), Shape{4, n});
      std::vector<double> everyone = to_vector<double>(all);
      for (size_t i = 0; i < everyone.size(); ++i) CHECK(everyone[i] == flat[i % flat.size()]);
    }
  });
}

TEST_CASE("several forwards, then their backwards in the other order") {
  auto run = [](const ZeroCase& c, dist::World* world) {
    seed(3);
    auto net = nn::build<OddNet>({.dtype = DType::f64});
    std::optional<dist::DeviceMesh> mesh;
    if (world) {
      mesh.emplace(*world, c.axes);
      nn::shard(net, *mesh, plan_of(c, net, *mesh));
    }
    auto place = [&](const Tensor& t) { return mesh ? dist::distribute(t, mesh->layout(c.batch + ", ...")) : t; };
    Tensor first = sum(square(net(place(tokens(0, 0))))), second = sum(square(net(place(tokens(1, 1)))));
    second.backward();
    first.backward();
    Values out;
    for (const nn::Parameter& p : net.parameters()) out.push_back(to_vector<double>(p.grad()));
    return out;
  };
  Values want = run({}, nullptr);
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    for (const ZeroCase& c : cases(world.size())) {
      CAPTURE(c.name);
      CHECK(relative_distance(run(c, &world), want) < 1e-12);
    }
  });
}

TEST_CASE("replicated 4, split 4 and 2 x 2: one norm, one step; one all-reduce of the split gradients over replicas") {
  Outcome want = one_step({}, nullptr);
  const int64_t bytes = (2 * 8 * 16 + 8 + 16) * 8;
  on_ranks({4}, [&](dist::World& world) {
    for (const ZeroCase& c : cases(4)) {
      if (c.tp) continue;
      CAPTURE(c.name);
      Outcome got = one_step(c, &world);
      CHECK(got.norm == doctest::Approx(want.norm).epsilon(1e-13));
      CHECK(relative_distance(got.parameters, want.parameters) < 1e-13);
      if (c.name != "hybrid, stage 3" && c.name != "hybrid, stage 2") continue;
      auto summed = only(got.events, dist::CollectiveKind::all_reduce, "rep");
      REQUIRE(summed.size() == 1);
      CHECK(summed[0].bytes == bytes / 2);
    }
  });
}

TEST_CASE("buckets of no byte, one, a parameter's size and one more or less: the same gradients") {
  Outcome want = one_step({}, nullptr);
  const int64_t weight = 8 * 16 * 8, total = (2 * 8 * 16 + 8 + 16) * 8;
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    for (const ZeroCase& c : cases(world.size())) {
      if (c.tp) continue;
      CAPTURE(c.name);
      for (int64_t bucket : {int64_t{0}, int64_t{1}, weight - 1, weight, weight + 1, total - 1, total, total + 1}) {
        CAPTURE(bucket);
        Outcome got = one_step(c, &world, bucket);
        CHECK(got.norm == doctest::Approx(want.norm).epsilon(1e-13));
        CHECK(relative_distance(got.parameters, want.parameters) < 1e-13);
        if (c.name != "stage 2") continue;
        size_t collectives = only(got.events, dist::CollectiveKind::reduce_scatter, "dp").size();
        if (bucket < 2) CHECK(collectives == 4);
        if (bucket >= total) CHECK(collectives == 1);
      }
    }
    CHECK_THROWS_AS(autograd::set_bucket_bytes(-1), ValueError);
  });
}
