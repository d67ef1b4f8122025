// Averages of weights.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

void set(const Tensor& w, double value) {
  NoGrad off;
  fill_(w, value);
}

}  // namespace

TEST_CASE("the average by hand, with and without warm-up, under every layout") {
  on_ranks({1, 2, 3, 4}, [](dist::World& world) {
    for (const char* text : {"-, -", "dp, -", "-, dp.tp"}) {
      Tensor w = dist::distribute(zeros({2, 3}, {.dtype = DType::f64}), grid(world).layout(text));
      nn::Parameter p(w, "w");
      optim::EMA plain({p}, {.decay = 0.75}), warm({p}, {.decay = 0.75, .warmup = true});
      set(w, 8);
      for (auto* ema : {&plain, &warm}) ema->update();
      CHECK(distance(plain.state()[0].second, full({2, 3}, 2, {.dtype = DType::f64})) < 1e-15);
      CHECK(distance(warm.state()[0].second, full({2, 3}, 7.2, {.dtype = DType::f64})) < 1e-14);  // decay 1/10
      set(w, 4);
      {
        optim::EMA::Scope averaged(plain);
        CHECK(plain.swapped());
        CHECK(distance(w, full({2, 3}, 2, {.dtype = DType::f64})) < 1e-15);
        check_throws<ValueError>([&] { plain.update(); }, {"swap()"});
      }
      CHECK(distance(w, full({2, 3}, 4, {.dtype = DType::f64})) == 0);
      CHECK(to_string(plain.state()[0].second.layout()) == to_string(w.layout()));
    }
  });
}

TEST_CASE("halves: averages in f32; a swap there and back leaves the master weights as they were") {
  Tensor w = cast(ones({3}), DType::bf16), other = cast(ones({3}), DType::bf16);
  nn::Parameter p(w, "w");
  optim::SGD opt(std::vector{w}, {.lr = 1e-4}), straight(std::vector{other}, {.lr = 1e-4});
  optim::EMA ema({p}, {.decay = 0.5});
  CHECK(ema.state()[0].second.dtype() == DType::f32);
  for (int k = 0; k < 100; ++k) {
    sum(w).backward();
    sum(other).backward();
    opt.step();
    straight.step();
    opt.zero_grad();
    straight.zero_grad();
    ema.update();
    ema.swap();
    ema.swap();
  }
  CHECK(equal(w, other));
  CHECK(item<double>(select(w, 0, 0)) < 0.995);
}

TEST_CASE("state: another layout, and nothing changed by what does not fit") {
  on_ranks({2}, [](dist::World& world) {
    Tensor w = dist::distribute(normal(1, {4}), grid(world).layout("tp"));
    nn::Parameter p(w, "w");
    optim::EMA first({p}, {.decay = 0.5}), second({p}, {.decay = 0.5});
    set(w, 1);
    first.update();
    auto state = first.state();
    state[0].second = dist::full_tensor(state[0].second);
    second.load_state(state);
    CHECK(second.updates() == 1);
    set(w, 3);
    first.update();
    second.update();
    CHECK(equal(first.state()[0].second, second.state()[0].second));
    state.emplace_back("v.average", zeros({4}));
    check_throws<ValueError>([&] { second.load_state(state); }, {"v.average"});
    state.pop_back();
    state[0].second = zeros({5});
    check_throws<ShapeError>([&] { second.load_state(state); }, {"w.average", "[4]"});
    CHECK(second.updates() == 2);
  });
  check_throws<ValueError>([] { optim::EMA none({}, {}); }, {"no parameters"});
}
