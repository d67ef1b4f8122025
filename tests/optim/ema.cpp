// Averages of weights.
#include "nn/support.h"

#include <stdexcept>

using namespace cleave;
using namespace cleave::test;

namespace {

void set(const Tensor& w, double value) {
  NoGrad off;
  fill_(w, value);
}

/// Three modules, the parameters of each of which are gathered while the one before computes.
struct Chain : nn::Module<Chain> {
  nn::Linear a{this, "a", 4, 4}, b{this, "b", 4, 4}, c{this, "c", 4, 4};
  std::function<void()> behind_a = [] {};
  Tensor forward(const Tensor& x) const {
    Tensor h = a(x);
    behind_a();
    return c(b(h));
  }
};

/// This rank may take so many bytes more while it lives.
struct MemoryLimit {
  explicit MemoryLimit(int64_t bytes) { set_memory_limit(memory_stats().active + bytes); }
  ~MemoryLimit() { set_memory_limit(0); }
};

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

namespace {

// One weight that a plan stores, uses and keeps state of as `layouts` says.
struct One : nn::Module<One> {
  nn::Parameter w{this, "w", Shape{5, 3}, nn::init::normal()};
};
One make_one() {
  seed(1);
  return nn::build<One>({.dtype = DType::bf16});
}
void place(One& one, dist::World& world, const char* layouts) {
  nn::shard(one, grid(world), {.parameter = {{"w", layouts}}});
}

// A step by a gradient that is the same under every layout, of steps too small for bf16 alone.
void step(const One& one, optim::Optimizer& opt, uint64_t k) {
  Tensor g = cast(normal(k, {5, 3}, DType::f32), DType::bf16);
  if (one.is_sharded()) g = dist::replicate(g, one.mesh());
  sum(static_cast<Tensor>(one.w) * g).backward();
  opt.step();
  opt.zero_grad();
}

Tensor whole(const Tensor& x) { return clone(dist::full_tensor(x)).detach(); }
Tensor whole(const std::vector<optim::NamedTensor>& state, const std::string& name) {
  for (const auto& [n, t] : state)
    if (n == name) return whole(t);
  return {};
}
// a + 0.01 (w - a), in f32.
Tensor averaged(const Tensor& a, const Tensor& w) { return a + (w - a) * static_cast<double>(0.01f); }

}  // namespace

TEST_CASE("halves of an optimizer: the average is that of the f32 masters, and lies as they do") {
  One alone = make_one();
  optim::AdamW reference(alone.parameters(), {.lr = 1e-4});
  optim::EMA ema(reference, {.decay = 0.99});
  Tensor start = cast(alone.w.tensor().detach(), DType::f32), want = start;
  for (uint64_t k = 0; k < 20; ++k) {
    step(alone, reference, k);
    ema.update();
    want = averaged(want, whole(reference.state(), "w.master"));
  }
  CHECK(distance(whole(ema.state(), "w.average"), want) < 1e-6);
  CHECK(distance(want, start) > 1e-5);  // less than the next bf16 number of most
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    for (const char* layouts : {"dp, -", "-, tp", "-, - => -, - => -, - => dp, -", "-, - => -, - => dp, -",
                                "dp, - => -, -", "tp, - => tp, - => tp, - => tp.dp, -"}) {
      CAPTURE(layouts);
      One one = make_one();
      place(one, world, layouts);
      optim::AdamW opt(one.parameters(), {.lr = 1e-4});
      optim::EMA averages(opt, {.decay = 0.99});
      for (uint64_t k = 0; k < 20; ++k) {
        step(one, opt, k);
        averages.update();
        if (k % 7) continue;
        Tensor before = whole(one.w);
        averages.swap();
        CHECK(equal(whole(one.w), cast(whole(averages.state(), "w.average"), DType::bf16)));
        averages.swap();
        CHECK(equal(whole(one.w), before));
      }
      CHECK(equal(whole(averages.state(), "w.average"), whole(ema.state(), "w.average")));
      CHECK(to_string(averages.state()[0].second.layout()) == to_string(opt.master(0).layout()));
    }
  });
}

TEST_CASE("a value that someone else wrote to one rank's rows: all ranks average alike") {
  on_ranks({3, 4}, [&](dist::World& world) {
    One one = make_one();
    place(one, world, "-, - => -, - => dp, -");  // the master lies as the gradient does
    optim::SGD opt(one.parameters(), {.lr = 1e-4});
    optim::EMA ema(opt, {.decay = 0.5});
    step(one, opt, 1);
    ema.update();
    Tensor average = whole(ema.state(), "w.average"), master = whole(opt.master(0)), changed = clone(master);
    {
      NoGrad off;
      fill_(narrow(changed, 0, 4, 1), 3);
    }
    one.w.assign(cast(changed, DType::bf16));
    ema.update();
    CHECK(to_string(ema.state()[0].second.layout()) == "dp, -");
    // Blocks of which nothing changed keep what bf16 does not hold.
    int64_t untouched = dist::balanced_block(5, grid(world).size("dp"), 0).size;
    Tensor got = narrow(whole(ema.state(), "w.average"), 0, 0, untouched);
    CHECK(distance(got, narrow((average + master) * 0.5, 0, 0, untouched)) < 1e-7);
    CHECK(distance(narrow(whole(ema.state(), "w.average"), 0, 4, 1), narrow((average + changed) * 0.5, 0, 4, 1)) <
          1e-6);
  });
}

TEST_CASE("f32 weights: averages lie as the optimizer's state, also without one") {
  on_ranks({2, 3}, [&](dist::World& world) {
    for (bool known : {true, false}) {
      auto one = nn::build<One>({.dtype = DType::f32});
      place(one, world, "-, - => -, - => -, - => dp, -");
      optim::AdamW opt(one.parameters(), {.lr = 0.1});
      optim::EMA ema = known ? optim::EMA(opt, {.decay = 0.5}) : optim::EMA(one.parameters(), {.decay = 0.5});
      Tensor want = whole(one.w);
      for (uint64_t k = 0; k < 3; ++k) {
        sum(square(static_cast<Tensor>(one.w))).backward();
        opt.step();
        opt.zero_grad();
        ema.update();
        want = (want + whole(one.w)) * 0.5;
      }
      Tensor average = ema.state()[0].second, before = whole(one.w);
      CHECK(distance(whole(average), want) < 1e-6);
      CHECK(to_string(average.layout()) == "dp, -");
      CHECK(to_string(average.layout()) == to_string(opt.state()[1].second.layout()));
      {
        optim::EMA::Scope averaged(ema);
        CHECK(equal(whole(one.w), whole(average)));
      }
      CHECK(equal(whole(one.w), before));
    }
  });
}

TEST_CASE("saved and resumed, the average of masters goes on bit by bit, also under another layout") {
  on_ranks({2, 4}, [&](dist::World& world) {
    const char* zero1 = "-, - => -, - => -, - => dp, -";
    One straight = make_one();
    place(straight, world, zero1);
    optim::AdamW opt(straight.parameters(), {.lr = 1e-4});
    optim::EMA ema(opt, {.decay = 0.99});
    auto run = [](const One& one, optim::Optimizer& o, optim::EMA& e, uint64_t from, uint64_t to) {
      for (uint64_t k = from; k < to; ++k) {
        step(one, o, k);
        e.update();
      }
    };
    run(straight, opt, ema, 0, 5);
    auto gathered = [](std::vector<optim::NamedTensor> state) {
      for (auto& [name, t] : state) t = whole(t);
      return state;
    };
    auto optimizer_state = gathered(opt.state()), averages = gathered(ema.state());
    Tensor weights = whole(straight.w);
    run(straight, opt, ema, 5, 9);
    for (const char* layouts : {zero1, "dp, - => -, -", "-, tp"}) {
      CAPTURE(layouts);
      One resumed = make_one();
      place(resumed, world, layouts);
      optim::AdamW next(resumed.parameters(), {.lr = 1e-4});
      optim::EMA later(next, {.decay = 0.99});
      resumed.w.assign(weights);
      next.load_state(optimizer_state);
      later.load_state(averages);
      run(resumed, next, later, 5, 9);
      CHECK(equal(whole(later.state(), "w.average"), whole(ema.state(), "w.average")));
    }
  });
}

TEST_CASE("a value that someone else wrote to a half is what is averaged") {
  Tensor w = cast(ones({3}), DType::bf16);
  optim::SGD opt({w}, {.lr = 1e-4});
  optim::EMA ema(opt, {.decay = 0.5});
  sum(w).backward();
  opt.step();
  CHECK(opt.master(0).defined());
  set(w, 3);
  CHECK(equal(opt.master(0), full({3}, 3)));
  ema.update();
  CHECK(distance(ema.state()[0].second, full({3}, 2)) == 0);
  Tensor f = ones({2});
  optim::SGD plain({f}, {});
  sum(f).backward();
  plain.step();
  CHECK(!plain.master(0).defined());  // is its own
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

TEST_CASE("a rank that fails while averages are in place ends the others, whatever is under way") {
  for (auto overlap : {dist::Overlap::off, dist::Overlap::on})
    for (int ranks : {2, 3}) {
      auto run = [&](dist::World& world) {
        dist::DeviceMesh mesh(world, {{"dp", world.size()}});
        Chain net;
        nn::shard(net, mesh, nn::zero(net, mesh, {.forward = {{"input", {"-, -"}}}}));
        optim::EMA ema(net.parameters(), {.decay = 0.5});
        Tensor x = dist::replicate(normal(1, {2, 4}, DType::f32), mesh);
        NoGrad off;
        net(x);
        if (world.rank() == 1) net.behind_a = [] { throw std::runtime_error("no more"); };
        optim::EMA::Scope averaged(ema);
        net(x);
      };
      CHECK(message_of<std::runtime_error>([&] { dist::run_ranks({.ranks = ranks, .overlap = overlap}, run); }) ==
            "no more");
    }
}

TEST_CASE("without memory for a swap or for another state, everything is as it was") {
  Tensor w = full({1000}, 2.0, {.dtype = DType::f64}), v = full({1000}, 3.0, {.dtype = DType::f64});
  nn::Parameter p(w, "w"), q(v, "v");
  optim::EMA ema({p, q}, {.decay = 0.5}), other({p, q}, {.decay = 0.5});
  set(w, 4);
  ema.update();
  Tensor threes = full({1000}, 3.0, {.dtype = DType::f64}), fours = full({1000}, 4.0, {.dtype = DType::f64});
  auto state = ema.state();
  {
    MemoryLimit one(10000);  // for a copy of one of the two
    CHECK_THROWS_AS(ema.swap(), OutOfMemoryError);
    CHECK_THROWS_AS(other.load_state(state), OutOfMemoryError);
  }
  CHECK(!ema.swapped());
  CHECK(equal(w, fours));
  CHECK(equal(v, threes));
  CHECK(other.updates() == 0);
  CHECK(distance(other.state()[0].second, full({1000}, 2.0, {.dtype = DType::f64})) == 0);
  {
    optim::EMA::Scope averaged(ema);
    CHECK(equal(w, threes));
  }
  CHECK(equal(w, fours));
}
