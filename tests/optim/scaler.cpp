// Loss scaling: skips that all ranks take together.
#include "nn/support.h"

#include <limits>

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Gives w the gradient `values` times the scaler's scale.
void backward(const optim::LossScaler& scaler, const Tensor& w, const std::vector<float>& values) {
  Tensor g = tensor(values);
  Tensor c = cast(w.is_distributed() ? dist::replicate(g, w.layout().mesh()) : g, w.dtype());
  scaler.scale(sum(cast(w * c, DType::f32))).backward();
}

}  // namespace

TEST_CASE("an infinity in one rank's part alone: all skip, and the scales stay the same bits") {
  on_ranks({1, 2, 3, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    Tensor w = dist::distribute(cast(ones({4}), DType::f16), mesh.layout("dp"));
    optim::AdamW opt({w}, {.lr = 0.1});
    optim::LossScaler scaler({.initial_scale = 8, .growth_interval = 2});
    auto once = [&](std::vector<float> g) {
      backward(scaler, w, g);
      bool stepped = scaler.step(opt);
      scaler.update();
      opt.zero_grad();
      return stepped;
    };
    CHECK(once({1, 2, 3, 4}));
    std::vector<Tensor> before{clone(dist::full_tensor(w)).detach()};
    for (auto& [name, t] : opt.state()) before.push_back(clone(dist::full_tensor(t)));
    for (double bad : {kInfinity, std::nan("")}) CHECK(!once({1, 2, 3, static_cast<float>(bad)}));
    CHECK(scaler.scale() == 2);
    CHECK(scaler.skipped() == 2);
    CHECK(equal(dist::full_tensor(w), before[0]));
    auto state = opt.state();
    for (size_t i = 0; i < state.size(); ++i) CHECK(equal(dist::full_tensor(state[i].second), before[i + 1]));
    CHECK(once({1, 2, 3, 4}));
    CHECK(scaler.scale() == 2);
    CHECK(once({1, 2, 3, 4}));
    CHECK(scaler.scale() == 4);  // two in a row
    double bits[2] = {scaler.scale(), -scaler.scale()};
    world.communicator().all_reduce(bits, 2, DType::f64, dist::ReduceOp::max);
    CHECK(bits[0] == -bits[1]);
  });
}

namespace {

// f16 weights that a plan splits, and a batch in two parts split over the ranks; all numbers are exact in f16.
struct Scaled : nn::Module<Scaled> {
  nn::Parameter w{this, "w", Shape{5, 3}, nn::init::constant(0.5)}, b{this, "b", Shape{3}},
      idle{this, "idle", Shape{2}};
  Tensor forward(const Tensor& x) const {
    return sum(cast(matmul(x, static_cast<Tensor>(w)) + static_cast<Tensor>(b), DType::f32)) +
           sum(cast(static_cast<Tensor>(idle) * 0.0, DType::f32));
  }
};

// Whether the step was taken. `bad`: the last row of the second part overflows f16 in backward at a scale of 64.
bool scaled_step(const Scaled& model, optim::Optimizer& opt, optim::LossScaler& scaler, uint64_t k, bool bad) {
  for (uint64_t part = 0; part < 2; ++part) {
    Tensor x = cast(randint(-4, 5, {7, 5}, {.seed = 2 * k + part}), DType::f16);
    if (bad && part == 1) {
      NoGrad off;
      fill_(narrow(x, 0, 6, 1), 2048);
    }
    if (model.is_sharded()) x = dist::distribute(x, model.mesh().layout("dp, -"));
    scaler.scale(model(x)).backward({.sync = part == 1});
  }
  bool stepped = scaler.step(opt);
  scaler.update();
  opt.zero_grad();
  return stepped;
}

Scaled make_scaled() { return nn::build<Scaled>({.dtype = DType::f16}); }

}  // namespace

TEST_CASE(
    "f16 in parts under every ZeRO stage: one rank overflows in one part, all leave the step out; else one device") {
  auto train = [](const Scaled& model, optim::LossScaler& scaler) {
    nn::set_gradient_precision(model, {.keep = DType::f16});
    optim::AdamW opt(model.parameters(), {.lr = 0.01});
    std::vector<bool> taken;
    for (uint64_t k = 0; k < 5; ++k) taken.push_back(scaled_step(model, opt, scaler, k, k == 2));
    CHECK(taken == std::vector<bool>{true, true, false, true, true});
    for (const auto& [name, t] : opt.state())
      if (name == "idle.step") CHECK(item<int64_t>(t) == 4);  // gradients of zero are gradients
  };
  Scaled one = make_scaled();
  optim::LossScaler reference({.initial_scale = 64, .growth_interval = 2});
  train(one, reference);
  CHECK(reference.scale() == 128);  // doubled, halved, doubled
  CHECK(reference.skipped() == 1);
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    for (int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      Scaled many = make_scaled();
      nn::ShardingPlan plan{.forward = {{"input", {"dp, -"}}}};
      if (stage > 0) plan = nn::zero(many, mesh, plan, {.stage = stage});
      nn::shard(many, mesh, plan);
      optim::LossScaler scaler({.initial_scale = 64, .growth_interval = 2});
      train(many, scaler);
      CHECK(scaler.scale() == reference.scale());
      CHECK(scaler.skipped() == 1);
      for (size_t i = 0; i < 3; ++i)
        CHECK(equal(dist::full_tensor(many.parameters()[i].tensor()), one.parameters()[i].tensor()));
    }
  });
}

TEST_CASE("the scale stays a number: bounds, and counts from another interval") {
  Tensor w = ones({1});
  optim::SGD opt({w}, {.lr = 1});
  optim::LossScaler scaler({.initial_scale = 4, .growth_interval = 1});
  auto once = [&](float g) {
    sum(w * g).backward();
    scaler.step(opt);
    scaler.update();
    opt.zero_grad();
  };
  for (int k = 0; k < 200; ++k) once(static_cast<float>(kInfinity));
  CHECK(scaler.scale() == std::numeric_limits<float>::min());
  CHECK(std::isfinite(static_cast<float>(1 / scaler.scale())));
  for (int k = 0; k < 300; ++k) once(0);
  CHECK(std::isfinite(static_cast<float>(scaler.scale())));
  CHECK(scaler.scale() > 1e38);
  CHECK(item<double>(w) == 1);
  optim::LossScaler counted({.initial_scale = 4, .growth_interval = 9}),
      shorter({.initial_scale = 4, .growth_interval = 2});
  for (int k = 0; k < 5; ++k) {
    sum(w * 0.0).backward();
    counted.step(opt);
    counted.update();
  }
  shorter.load_state(counted.state());
  shorter.step(opt);
  shorter.update();
  CHECK(shorter.scale() == 8);
  auto with = [&](size_t i, const Tensor& value) {
    auto state = counted.state();
    state[i].second = value;
    return state;
  };
  check_throws<ValueError>([&] { shorter.load_state(with(0, tensor<double>({kInfinity}, {}))); },
                           {"scaler.scale", "finite"});
  check_throws<ValueError>([&] { shorter.load_state(with(1, tensor<int64_t>({-1}, {}))); },
                           {"growth_tracker", "negative"});
  CHECK(shorter.scale() == 8);
}

TEST_CASE("a loss of 16 bits is scaled in f32, where the product is a number") {
  Tensor scaled = optim::LossScaler().scale(cast(full({}, 2.0), DType::f16));
  CHECK(scaled.dtype() == DType::f32);
  CHECK(item<double>(scaled) == 131072);
}

TEST_CASE("unscaled gradients are the loss's own, in f32, and are divided once") {
  Tensor w = cast(ones({2}), DType::f16);
  optim::SGD opt({w}, {.lr = 1});
  optim::LossScaler scaler({.initial_scale = 1024});
  backward(scaler, w, {0x1p-20f, 0.5f});  // the first is no f16 of full precision
  scaler.unscale(opt);
  CHECK(w.grad().dtype() == DType::f32);
  CHECK(to_vector<double>(w.grad()) == std::vector<double>{0x1p-20, 0.5});
  check_throws<ValueError>([&] { scaler.unscale(opt); }, {"already", "update()"});
  CHECK(scaler.step(opt));
  check_throws<ValueError>([&] { scaler.step(opt); }, {"twice"});
  CHECK(to_vector<double>(w)[1] == 0.5);
  scaler.update();
  check_throws<ValueError>([&] { scaler.update(); }, {"without"});
}

TEST_CASE("two optimizers: each skips for itself, the scale falls for either; state goes on; off") {
  Tensor a = ones({1}), b = ones({1});
  optim::SGD first({a}, {.lr = 1}), second({b}, {.lr = 1});
  optim::LossScaler scaler({.initial_scale = 4});
  backward(scaler, a, {static_cast<float>(kInfinity)});
  backward(scaler, b, {0.5f});
  CHECK(!scaler.step(first));
  CHECK(scaler.step(second));
  scaler.update();
  CHECK(item<double>(a) == 1);
  CHECK(item<double>(b) == 0.5);
  CHECK(scaler.scale() == 2);
  optim::LossScaler other;
  CHECK(other.scale() == 65536);
  other.load_state(scaler.state());
  CHECK(other.scale() == 2);
  CHECK(other.skipped() == 1);
  auto half = scaler.state();
  half.pop_back();
  check_throws<ValueError>([&] { other.load_state(half); }, {"scaler.skipped", "missing"});
  check_throws<ValueError>([] { optim::LossScaler bad({.backoff = 0}); }, {"backoff"});
  optim::LossScaler off({.enabled = false});
  CHECK(off.scale() == 1);
  first.zero_grad();
  backward(off, a, {0.5f});
  CHECK(off.step(first));
  CHECK(item<double>(a) == 0.5);
}

TEST_CASE("all_finite: one number, one answer, also on ranks that hold nothing") {
  on_ranks({4}, [](dist::World& world) {
    dist::DeviceMesh all(world, {{"pp", 2}, {"tp", 2}}), second = all.at("pp", 1);
    for (float last : {1.0f, static_cast<float>(kInfinity)}) {
      Tensor w = dist::distribute(ones({3}), second.layout("tp"));
      w.set_requires_grad(true);
      sum(w * dist::replicate(tensor<float>({1, 2, last}), second)).backward();
      dist::reset_comm_counts();
      CHECK(optim::all_finite(std::vector{w}) == std::isfinite(last));
      auto counts = dist::comm_counts();
      REQUIRE(counts.size() == 1);
      CHECK(counts[0].bytes == 8);
    }
  });
}
