// What a step or a swap writes has a new version: a backward that saved the old values is an error, or its own
// gradient.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct One : nn::Module<One> {
  nn::Parameter w{this, "w", Shape{6, 3}, nn::init::normal()};
  Tensor forward() const { return sum(square(static_cast<Tensor>(w))); }
};

// Plain; stored split; stages 1, 2 and 3 of ZeRO.
constexpr const char* kLayouts[] = {"", "dp, -", "-, - => -, - => -, - => dp, -", "-, - => -, - => dp, -",
                                    "dp, - => -, -"};

void for_cases(const std::function<void(const One&)>& f) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16})
    on_ranks({1, 2}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"dp", world.size()}});
      for (std::string text : kLayouts) {
        CAPTURE(text);
        CAPTURE(to_string(dtype));
        One model = nn::build<One>({.dtype = dtype});
        if (!text.empty()) nn::shard(model, mesh, {.parameter = {{"w", text}}});
        f(model);
      }
    });
}

// Of a forward made before the weights changed: an error, or (the gather of one rank is a copy) its own gradient.
void check_old(const One& model, const Tensor& loss, const Tensor& weights) {
  model.zero_grad();
  try {
    loss.backward();
  } catch (const GradError&) { return; }
  CHECK(distance(model.w.grad(), weights * 2.0) == 0);
}
Tensor weights_of(const One& model) { return clone(dist::full_tensor(model.w.tensor().detach())); }

}  // namespace

TEST_CASE("a backward through weights that a step has changed since never takes the new ones, wherever it is made") {
  for_cases([](const One& model) {
    optim::AdamW opt(model.parameters());
    model().backward();
    Tensor old = model(), weights = weights_of(model);
    opt.step();
    check_old(model, old, weights);
  });
}

TEST_CASE("a backward through weights that averages have taken the place of, or left again, never does") {
  for_cases([](const One& model) {
    optim::EMA ema(model.parameters());
    {
      NoGrad off;
      copy_(model.w.tensor(), model.w.tensor() * 2.0);
    }
    Tensor own = model(), own_weights = weights_of(model);
    ema.swap();
    check_old(model, own, own_weights);
    Tensor averaged = model(), average = weights_of(model);
    ema.swap();
    check_old(model, averaged, average);
  });
}

TEST_CASE("a half that was written to after its state was loaded and a step was made counts") {
  Tensor w = cast(full({3}, 1.0), DType::bf16), v = clone(w);
  optim::SGD first({w}, {.lr = 1e-4}), resumed({v}, {.lr = 1e-4});
  auto step = [](const Tensor& x, optim::Optimizer& opt) {
    sum(x).backward();
    opt.step();
    opt.zero_grad();
  };
  step(w, first);
  resumed.load_state(first.state());
  step(v, resumed);
  {
    NoGrad off;
    copy_(v, full({3}, 5.0));
  }
  step(v, resumed);
  CHECK(item<double>(select(v, 0, 0)) == 5);
  CHECK(item<double>(select(resumed.master(0), 0, 0)) == doctest::Approx(5 - 1e-4).epsilon(1e-6));
}

TEST_CASE("averages: what was loaded is a copy; a model that was deferred may be swapped before the first update") {
  One model = nn::build<One>({.dtype = DType::f64});
  optim::EMA ema(model.parameters());
  auto state = ema.state();
  for (auto& [name, x] : state) x = clone(x);
  ema.load_state(state);
  Tensor kept = clone(state[0].second);
  fill_(state[0].second, 7);
  CHECK(equal(ema.state()[0].second, kept));

  One deferred = nn::build<One>({.dtype = DType::f64, .deferred = true});
  optim::EMA later(deferred.parameters());
  nn::materialize(deferred);
  Tensor own = clone(deferred.w.tensor().detach());
  optim::EMA::Scope averaged(later);
  CHECK(equal(deferred.w.tensor(), own));
}

TEST_CASE("state is read in the layout in which the plan keeps it") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    One model;
    nn::shard(model, mesh, {.parameter = {{"w", "-, - => -, - => -, - => dp, -"}}});
    auto layout_of = optim::state_layouts(model.parameters());
    CHECK(to_string(layout_of("w.exp_avg", {DType::f32, {6, 3}})) == "dp, -");
    CHECK(!layout_of("w.step", {DType::i64, {}}).defined());
    CHECK(!layout_of("v.exp_avg", {DType::f32, {6, 3}}).defined());
  });
}
