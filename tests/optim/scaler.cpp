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
