// Optimizers against the formulas of their papers in plain loops, for every layout.
#include "nn/support.h"

#include <cleave/ops/row_cache.h>

#include <cmath>
#include <map>

using namespace cleave;
using namespace cleave::test;

namespace {

using Vector = std::vector<double>;

// The documented update rules of PyTorch's SGD, Adam and AdamW, element by element.
struct Reference {
  Vector w, m, v;
  int t = 0;
  void sgd(const Vector& g, const optim::SGDOptions& o) {
    ++t;
    for (size_t i = 0; i < w.size(); ++i) {
      double d = g[i] + o.weight_decay * w[i];
      if (o.momentum != 0) {
        m[i] = t == 1 ? d : o.momentum * m[i] + (1 - o.dampening) * d;
        d = o.nesterov ? d + o.momentum * m[i] : m[i];
      }
      w[i] -= o.lr * d;
    }
  }
  template <class O>
  void adam(const Vector& g, const O& o, bool decoupled) {
    ++t;
    for (size_t i = 0; i < w.size(); ++i) {
      double d = decoupled ? g[i] : g[i] + o.weight_decay * w[i];
      if (decoupled) w[i] *= 1 - o.lr * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * d;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * d * d;
      w[i] -= o.lr * (m[i] / (1 - std::pow(o.beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(o.beta2, t))) + o.eps);
    }
  }
};

constexpr int kSteps = 4;
const Shape kShape{3, 5};
Vector start() { return to_vector<double>(normal(1, kShape)); }
Vector gradient(int step) { return to_vector<double>(normal(100 + static_cast<uint64_t>(step), kShape)); }

Reference reference() {
  Vector w = start();
  return {w, Vector(w.size(), 0.0), Vector(w.size(), 0.0)};
}

// Gives w this gradient by differentiating sum(w * g), split on dp as data is.
void give(const Tensor& w, const Vector& g, dist::DeviceMesh* mesh) {
  Tensor c = tensor(g, kShape, {.dtype = w.dtype()});
  sum(w * (mesh ? dist::distribute(c, mesh->layout("dp, -")) : c)).backward({.sync = false});
}

template <class Opt, class Options, class Step>
void compare(const Options& options, Step step) {
  Reference want = reference();
  for (int s = 0; s < kSteps; ++s) step(want, gradient(s));
  auto run = [&](Tensor w, dist::DeviceMesh* mesh) {
    Opt opt({w}, options);
    for (int s = 0; s < kSteps; ++s) {
      give(w, gradient(s), mesh);
      opt.step();
      opt.zero_grad();
    }
    Vector got = to_vector<double>(w);
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want.w[i]).epsilon(1e-12));
  };
  run(normal(1, kShape), nullptr);
  on_ranks({2, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    for (const char* text : {"-, -", "dp, -", "tp, -", "-, tp", "dp, tp", "dp.tp, -", "-, tp.dp"}) {
      CAPTURE(text);
      run(dist::distribute(normal(1, kShape), mesh.layout(text)), &mesh);
    }
  });
}

}  // namespace

TEST_CASE("SGD: plain, momentum, dampening, decay, Nesterov") {
  for (const optim::SGDOptions& o :
       {optim::SGDOptions{.lr = 0.1}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
        optim::SGDOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.2},
        optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}})
    compare<optim::SGD>(o, [&](Reference& r, const Vector& g) { r.sgd(g, o); });
  Tensor w = normal(1, {2});
  check_throws<ValueError>([&] { optim::SGD opt({w}, {.nesterov = true}); }, {"nesterov", "momentum"});
  check_throws<ValueError>([&] { optim::SGD opt({w}, {.lr = -1}); }, {"lr", "negative"});
}

TEST_CASE("Adam adds decay to the gradient, AdamW to the weight") {
  optim::AdamOptions a{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  compare<optim::Adam>(a, [&](Reference& r, const Vector& g) { r.adam(g, a, false); });
  optim::AdamWOptions w{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  compare<optim::AdamW>(w, [&](Reference& r, const Vector& g) { r.adam(g, w, true); });
  CHECK(optim::AdamWOptions{}.weight_decay == 1e-2);
  CHECK(optim::AdamOptions{}.weight_decay == 0);
  Tensor x = normal(1, {2});
  check_throws<ValueError>([&] { optim::AdamW opt({x}, {.beta2 = 1.0}); }, {"beta2", "[0, 1)"});
}

namespace {

struct Mlp : nn::Module<Mlp> {
  nn::Linear up{this, "up", 6, 9}, down{this, "down", 9, 6};
  nn::LayerNorm norm{this, "norm", 6};
  Tensor forward(const Tensor& x) const { return norm(down(gelu(up(x)))); }
};

Tensor placed(const nn::ModuleBase& m, const Tensor& x) { return m.is_sharded() ? dist::replicate(x, m.mesh()) : x; }

void train(const Mlp& model, optim::Optimizer& opt, int from, int to) {
  for (int step = from; step < to; ++step) {
    Tensor x = placed(model, normal(static_cast<uint64_t>(step), {8, 6}, model.up.weight.dtype()));
    sum(square(model(x) - x)).backward();
    opt.step();
    opt.zero_grad();
  }
}

Mlp make(DType dtype = DType::f64) {
  seed(1);
  return nn::build<Mlp>({.dtype = dtype});
}

double difference(const nn::ModuleBase& a, const nn::ModuleBase& b) {
  auto p = a.parameters(), q = b.parameters();
  double d = 0;
  for (size_t i = 0; i < p.size(); ++i) d = std::max(d, distance(p[i].tensor(), q[i].tensor()));
  return d;
}

const nn::ShardingPlan tp{.parameter = {{"up.weight", "tp, -"}, {"up.bias", "tp"}, {"down.weight", "-, tp"}},
                          .forward = {{"input", {"dp, -"}}, {"down.output", {"dp, -"}}}};
const nn::ShardingPlan zero2{.parameter = {{"*.weight", "... => ... => dp, ..."}}, .forward = {{"input", {"dp, -"}}}};
const nn::ShardingPlan gathered{.parameter = {{"*.weight", "dp, ... => ... => ..."}},
                                .forward = {{"input", {"dp, -"}}}};
const nn::ShardingPlan zero3{.parameter = {{"*.weight", "dp, ... => ..."}}, .forward = {{"input", {"dp, -"}}}};

}  // namespace

TEST_CASE("handles taken before shard update the sharded model") {
  Mlp one = make();
  optim::AdamW reference(one.parameters(), {.lr = 0.01});
  train(one, reference, 0, 5);
  on_ranks({1, 2, 4}, [&](dist::World& world) {
    for (const auto& plan : {nn::ShardingPlan{}, tp, zero2, zero3, gathered}) {
      Mlp many = make();
      optim::AdamW opt(many.parameters(), {.lr = 0.01});
      nn::shard(many, grid(world), plan);
      train(many, opt, 0, 5);
      CHECK(difference(many, one) < 1e-11);
    }
  });
}

TEST_CASE("ZeRO: state takes only this rank's part, parameters stay whole") {
  on_ranks({4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 4}});
    for (const auto& plan : {zero2, zero3}) {
      Mlp model = make();
      nn::shard(model, mesh, plan);
      optim::AdamW opt(model.parameters(), {.lr = 0.01});
      train(model, opt, 0, 1);
      for (auto& [name, t] : opt.state())
        if (name == "up.weight.exp_avg") {
          CHECK(t.shape() == Shape{9, 6});
          CHECK(to_string(t.layout()) == "dp, -");
          CHECK(numel(t.local()) <= 3 * 6);
        }
    }
  });
}

TEST_CASE("plain and distributed parameters in one step") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    Tensor a0 = normal(1, {4}), b0 = normal(2, {4});
    Tensor a = clone(a0), b = dist::distribute(b0, mesh.layout("tp"));
    optim::SGD opt({a, b}, {.lr = 0.5, .momentum = 0.9});
    for (int k = 0; k < 2; ++k) {
      sum(square(a)).backward();
      sum(square(b)).backward();
      opt.step();
      opt.zero_grad();
    }
    // w1 = w0 - 0.5 * 2 w0 = 0; then buf = 0.9 * 2 w0 and w2 = -0.9 w0.
    CHECK(distance(a, a0 * -0.9) < 1e-14);
    CHECK(distance(b, b0 * -0.9) < 1e-14);
  });
}

TEST_CASE("parameters without a gradient, and frozen ones, are passed by") {
  Tensor a = normal(1, {4}), b = normal(2, {4}), c = normal(3, {4});
  optim::AdamW opt({a, b, c}, {.lr = 0.1, .weight_decay = 0.5});
  Tensor b0 = clone(b.detach()), c0 = clone(c.detach());
  sum(square(a) + c).backward();
  c.set_requires_grad(false);
  opt.step();
  CHECK(equal(b, b0));
  CHECK(equal(c, c0));
  CHECK(opt.state().size() == 3);  // step and two moments of a
}

TEST_CASE("groups: each its options; the factor scales all; decay for matrices only") {
  Mlp model = make();
  auto [decay, rest] = optim::partition(model.parameters(), optim::decays);
  CHECK(decay.size() == 2);
  CHECK(rest.size() == 4);
  optim::SGD opt({{.parameters = decay, .options = {.lr = 0.1, .weight_decay = 0.5}},
                  {.parameters = rest, .options = {.lr = 0.2}}});
  CHECK(opt.parameters().size() == 6);
  opt.set_lr_factor(0.5);
  CHECK(opt.lr() == 0.05);
  Tensor w = clone(model.up.weight.tensor().detach()), b = clone(model.up.bias->tensor().detach());
  sum(static_cast<Tensor>(model.up.weight)).backward();
  sum(static_cast<Tensor>(*model.up.bias)).backward();
  opt.step();
  CHECK(distance(model.up.weight, w - (ones({9, 6}, {.dtype = DType::f64}) + w * 0.5) * 0.05) < 1e-15);
  CHECK(distance(*model.up.bias, b - 0.1) < 1e-15);
  opt.zero_grad();
  opt.groups()[1].options.lr = 0;
  b = clone(model.up.bias->tensor().detach());
  sum(static_cast<Tensor>(*model.up.bias)).backward();
  opt.step();
  CHECK(equal(*model.up.bias, b));
  check_throws<ValueError>(
      [&] {
        optim::SGD twice({{.parameters = decay}, {.parameters = decay}});
      },
      {"up.weight", "twice"});
  check_throws<ValueError>([] { optim::SGD none(std::vector<nn::Parameter>{}); }, {"no parameters"});
}

TEST_CASE("the factor scales every optimizer's step") {
  auto moved = [](auto make) {
    Tensor w = zeros({1}, {.dtype = DType::f64});
    auto opt = make(w);
    opt->set_lr_factor(0.25);
    sum(w).backward();
    opt->step();
    return item<double>(w);
  };
  CHECK(moved([](const Tensor& w) {
          return std::make_unique<optim::SGD>(std::vector{w}, optim::SGDOptions{.lr = 0.4});
        }) == doctest::Approx(-0.1));
  CHECK(moved([](const Tensor& w) {
          return std::make_unique<optim::Adam>(std::vector{w}, optim::AdamOptions{.lr = 0.4});
        }) == doctest::Approx(-0.1));
  CHECK(moved([](const Tensor& w) {
          return std::make_unique<optim::AdamW>(std::vector{w}, optim::AdamWOptions{.lr = 0.4});
        }) == doctest::Approx(-0.1));
}

TEST_CASE("halves are updated through a master copy in f32") {
  for (DType half : {DType::bf16, DType::f16}) {
    Tensor w = cast(full({3}, 1.0), half);
    Tensor exact = full({3}, 1.0);
    optim::SGD opt({w}, {.lr = 1e-4}), reference({exact}, {.lr = 1e-4});
    for (int k = 0; k < 100; ++k) {  // each step alone is lost in rounding
      sum(w).backward();
      sum(exact).backward();
      opt.step();
      reference.step();
      opt.zero_grad();
      reference.zero_grad();
    }
    CHECK(equal(w, cast(exact.detach(), half)));
    CHECK(item<double>(select(w, 0, 0)) == doctest::Approx(0.99).epsilon(0.005));
    // A value that someone else wrote counts.
    {
      NoGrad off;
      copy_(w, full({3}, 5.0));
    }
    sum(w).backward();
    opt.step();
    CHECK(item<double>(select(w, 0, 0)) == doctest::Approx(5).epsilon(0.005));
  }
}

TEST_CASE("half models under plans: a step of SGD is one device's, within the rounding of gradients to bf16") {
  auto moves = [](const Mlp& model) {  // of the masters, in one step
    optim::SGD opt(model.parameters(), {.lr = 1});
    std::vector<Tensor> out;
    for (const auto& p : model.parameters()) out.push_back(clone(dist::full_tensor(p.tensor())).detach());
    train(model, opt, 0, 1);
    for (size_t i = 0; i < out.size(); ++i) out[i] = dist::full_tensor(opt.master(i)) - cast(out[i], DType::f32);
    return out;
  };
  Mlp one = make(DType::bf16);
  std::vector<Tensor> want = moves(one);
  on_ranks({2, 4}, [&](dist::World& world) {
    for (const auto& plan : {tp, zero2, zero3}) {
      Mlp many = make(DType::bf16);
      nn::shard(many, grid(world), plan);
      std::vector<Tensor> got = moves(many);
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(distance(got[i], want[i]) < 8 * 0x1p-8 * item<double>(amax(abs(want[i]))));
    }
  });
}

TEST_CASE("state by name: saved under one layout, loaded in any order under another, training goes on alike") {
  Mlp one = make();
  optim::AdamW straight(one.parameters(), {.lr = 0.01});
  train(one, straight, 0, 4);
  on_ranks({1, 2, 4}, [&](dist::World& world) {
    for (const auto& plan : {tp, zero2}) {
      Mlp first = make(), second = make();
      nn::shard(first, grid(world), plan);
      optim::AdamW before(first.parameters(), {.lr = 0.01});
      train(first, before, 0, 2);
      auto state = before.state();
      CHECK(state.size() == 18);
      std::reverse(state.begin(), state.end());
      for (auto& [name, t] : state) t = dist::full_tensor(t);
      nn::shard(second, grid(world, true), zero3);
      optim::AdamW after(second.parameters(), {.lr = 0.01});
      auto p = first.parameters(), q = second.parameters();
      for (size_t i = 0; i < p.size(); ++i) q[i].assign(dist::full_tensor(p[i].tensor()));
      after.load_state(state);
      train(second, after, 2, 4);
      CHECK(difference(second, one) < 1e-11);
      check_throws<ValueError>([&] { after.load_state({{"up.wight.step", zeros({})}}); }, {"up.wight.step"});
      check_throws<ValueError>([&] { after.load_state({{"up.weight.velocity", zeros({9, 6})}}); }, {"velocity"});
      check_throws<ShapeError>(
          [&] {
            after.load_state({{"up.weight.exp_avg", zeros({6, 9})}});
          },
          {"exp_avg", "[9, 6]"});
    }
  });
}

TEST_CASE("tied parameters have one state, empty ones none to speak of, empty blocks work") {
  struct Odd : nn::Module<Odd> {
    nn::Linear w{this, "w", 2, 3}, nothing{this, "nothing", 2, 0};
    nn::Parameter tie{this, "tie", w.weight};
    Tensor forward(const Tensor& x) const {
      return sum(square(w(x))) + sum(square(matmul(x, transpose(tie, 0, 1)))) + sum(nothing(x));
    }
  };
  auto run = [](const Odd& model) {
    optim::Adam opt(model.parameters(), {.lr = 0.1});
    CHECK(opt.parameters().size() == 4);
    for (uint64_t k = 0; k < 3; ++k) {
      model(placed(model, normal(k, {5, 2}))).backward();
      opt.step();
      opt.zero_grad();
    }
  };
  seed(1);
  auto one = nn::build<Odd>({.dtype = DType::f64});
  run(one);
  on_ranks({4}, [&](dist::World& world) {  // 3 rows over 4 ranks: one has none
    seed(1);
    auto many = nn::build<Odd>({.dtype = DType::f64});
    nn::shard(many, grid(world, true), {.parameter = {{"w.weight", "tp, -"}, {"nothing.weight", "tp, -"}}});
    run(many);
    CHECK(difference(many, one) < 1e-12);
  });
}

TEST_CASE("a thousand steps add nothing to the rule cache") {
  on_ranks({2}, [](dist::World& world) {
    Tensor w = dist::distribute(normal(1, {4}), grid(world).layout("tp"));
    optim::AdamW opt({w}, {.lr = 1e-3});
    size_t size = 0;
    for (int k = 0; k < 1000; ++k) {
      opt.set_lr_factor(1.0 / (k + 1));
      sum(square(w)).backward();
      opt.step();
      opt.zero_grad();
      if (k == 2) size = row_cache_size();
    }
    CHECK(row_cache_size() == size);
  });
}

TEST_CASE("steps and clipping are counted as the optimizer's traffic") {
  on_ranks({2}, [](dist::World& world) {
    Mlp model = make();
    nn::shard(model, dist::DeviceMesh(world, {{"dp", 2}}), zero2);
    optim::AdamW opt(model.parameters(), {.lr = 0.01});
    train(model, opt, 0, 1);
    dist::reset_comm_counts();
    train(model, opt, 1, 2);
    int64_t gathered = 0;
    for (const auto& c : dist::comm_counts())
      if (c.phase == "optimizer") {
        CHECK(c.kind == dist::CollectiveKind::all_gather);
        gathered += c.bytes;
      }
    CHECK(gathered > 0);
  });
}

namespace {
struct Layer : nn::Module<Layer> {
  nn::Linear linear{this, "linear", 60, 70};
  Tensor forward(const Tensor& x) const { return linear(x); }
};
}  // namespace

TEST_CASE("a step that failed for lack of memory leaves nothing behind for the next one") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    bool done = false;
    int failed = 0;
    for (int64_t limit = 0; !done; limit += 16384) {
      auto model = nn::build<Layer>({});
      nn::shard(model, mesh, nn::zero(model, mesh, {}, {.stage = 1}));
      optim::AdamW opt(model.parameters(), {.lr = 0.5});
      const Tensor& stored = model.linear.weight.tensor();
      Tensor weight = clone(dist::full_tensor(stored.detach()));
      for (const auto& p : opt.parameters()) sum(square(p.tensor())).backward();
      set_memory_limit(memory_stats().active + 1 + limit);  // alike on all ranks
      try {
        opt.step();
        done = true;
      } catch (const OutOfMemoryError&) { ++failed; }
      set_memory_limit(0);
      if (done) break;
      opt.zero_grad();
      opt.step();
      CHECK(distance(stored.detach(), weight) == 0);
    }
    CHECK(failed > 1);
  });
}
