// Activation checkpointing as a call: what functions may take, give, use and see.
#include "nn/support.h"

#include <cleave/autograd/engine.h>
#include <cleave/core/random.h>
#include <cleave/dist/ambient.h>
#include <cleave/dist/communicator.h>

#include <memory>

using namespace cleave;
using namespace cleave::test;

namespace {

Tensor leaf(uint64_t seed, const Shape& shape) { return normal(seed, shape).set_requires_grad(); }

using Gradients = std::vector<std::vector<double>>;
Gradients gradients(const std::vector<Tensor>& leaves) {
  Gradients out;
  for (const Tensor& x : leaves) {
    out.push_back(x.grad().defined() ? to_vector<double>(x.grad()) : std::vector<double>{});
    x.zero_grad();
  }
  return out;
}

// `use(call)` gives a loss; `call` is a plain call or a checkpoint.
template <class F>
void check_same(const std::vector<Tensor>& leaves, F use) {
  cleave::detail::RandomKey start = cleave::detail::random_state();
  use([](auto fn, auto&&... a) { return fn(std::forward<decltype(a)>(a)...); }).backward();
  Gradients want = gradients(leaves);
  cleave::detail::RandomKey after = cleave::detail::random_state();
  cleave::detail::set_random_state(start);
  use([](auto fn, auto&&... a) { return nn::checkpoint(fn, std::forward<decltype(a)>(a)...); }).backward();
  CHECK(gradients(leaves) == want);
  CHECK(cleave::detail::random_state().call == after.call);
}

struct Counted : nn::Module<Counted> {
  nn::Linear linear{this, "linear", 3, 3};
  nn::Dropout dropout{this, "dropout", 0.5};
  mutable int calls = 0;
  explicit Counted() = default;
  Counted(nn::ModuleBase* parent, std::string name) : Module(parent, std::move(name)) {}
  Tensor forward(const Tensor& x) const {
    ++calls;
    return dropout(linear(x));
  }
};

}  // namespace

TEST_CASE("arguments of every kind, leaves and tensors from outside") {
  Tensor x = leaf(1, {3, 3}), y = leaf(2, {3, 3}), w = leaf(3, {3, 3}), b = leaf(4, {3});
  check_same({x, y, w, b}, [&](auto call) {
    Tensor outside = exp(b), input = matmul(x, w);
    std::vector<Tensor> list{input, y};
    auto f = [w, outside](const std::vector<Tensor>& v, std::pair<Tensor, int> p, const Tensor& none, double factor,
                          const char* name) {
      CHECK(std::string(name) == "name");
      CHECK(!none.defined());
      return sin(matmul(v[0], w)) * outside * factor + v[1] * p.first * static_cast<double>(p.second);
    };
    return sum(call(f, list, std::pair{input, 3}, Tensor(), 0.5, "name") * input);
  });
}

TEST_CASE("several results: unused, integer, an input, a leaf, one twice, what needs no gradient") {
  Tensor x = leaf(1, {2, 3}), w = leaf(2, {2, 3}), c = normal(3, {2, 3});
  for (int used : {0, 1, 2, 3})
    check_same({x, w}, [&](auto call) {
      Tensor h = sin(x);
      auto f = [=](const Tensor& t) {
        Tensor e = exp(t) * w;
        return std::tuple{e, t * w, argmax(e, 1), t, w, e, c};
      };
      auto [a, b, index, input, parameter, again, constant] = call(f, h);
      CHECK(index.dtype() == DType::i64);
      CHECK(input.impl() == h.impl());
      CHECK(parameter.impl() == w.impl());
      CHECK(!constant.requires_grad());
      CHECK(a.impl() == again.impl());
      Tensor loss = sum(input * parameter);
      if (used & 1) loss = loss + sum(a * again);
      if (used & 2) loss = loss + sum(square(b));
      return loss;
    });
}

TEST_CASE("calls in calls, and random numbers drawn inside") {
  Tensor x = leaf(1, {4, 3}), w = leaf(2, {3, 3});
  seed(5);
  check_same({x, w}, [&](auto call) {
    auto inner = [=](const Tensor& h) { return dropout(matmul(h, w), 0.5) + randn({3}, {.dtype = DType::f64}); };
    auto outer = [=](const Tensor& h) { return tanh(call(inner, call(inner, h))) * rand({3}, {.dtype = DType::f64}); };
    Tensor h = call(outer, x);
    return sum(square(dropout(call(outer, h), 0.25)));
  });
}

TEST_CASE("under every layout, with tensors from outside and what they were gathered to") {
  on_ranks({1, 2, 3, 4}, [](dist::World& world) {
    for (bool flat : {false, true}) {
      dist::DeviceMesh mesh = grid(world, flat);
      auto placed = [&](uint64_t s, const Shape& shape, const char* layout) {
        return dist::distribute(normal(s, shape), mesh.layout(layout)).set_requires_grad();
      };
      Tensor x = placed(1, {5, 3}, "dp, -"), w = placed(2, {4, 3}, "tp, -"), v = placed(3, {3, 4}, "-, tp"),
             z = placed(4, {3}, "dp.tp");
      check_same({x, w, v, z}, [&](auto call) {
        Tensor outside = dist::redistribute(sin(z), mesh.layout("-")), scale = exp(z);
        auto f = [=](const Tensor& h) {
          return linear(gelu(linear(h, w)), v) * outside + dist::redistribute(scale, dist::Layout(outside.layout()));
        };
        Tensor h = call(f, call(f, x));  // left partial over tp
        return sum(square(h)) + sum(h * outside);
      });
    }
  });
}

TEST_CASE("the second call sees mesh, mode and random numbers of the first, and leaves none of them behind") {
  Counted model;
  Tensor x = normal(1, {4, 3}, DType::f32);
  auto gradient = [&](bool checkpointed, auto between) {
    seed(3);
    model.train();
    Tensor y = checkpointed ? nn::checkpoint(model, x) : model(x);
    between();
    sum(square(y)).backward();
    Gradients out = gradients({model.linear.weight.tensor()});
    CHECK(!model.dropout.training());
    CHECK(cleave::detail::random_state().call == 7);
    return out;
  };
  auto change = [&] {
    model.eval();
    cleave::detail::set_random_state({9, 7});
  };
  Gradients want = gradient(false, change);
  CHECK(gradient(true, change) == want);
  CHECK(model.calls == 3);
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", 2}});
    Tensor z = dist::distribute(normal(1, {4}), mesh.layout("tp")).set_requires_grad();
    Tensor y;
    {
      dist::UseMesh ambient(mesh);
      y = nn::checkpoint([](const Tensor& h) { return h * arange(4, {.dtype = DType::f64}); }, z);
    }
    sum(y).backward();
    CHECK(to_vector<double>(z.grad()) == std::vector<double>{0, 1, 2, 3});
    CHECK(dist::ambient_mesh() == nullptr);
  });
}

TEST_CASE("the second call casts as the first did, and may redistribute what that could") {
  Tensor x = normal(1, {4, 3}, DType::f32), w = normal(2, {3, 5}, DType::f32).set_requires_grad();
  auto gradient = [&](bool checkpointed) {
    Tensor y;
    {
      Autocast scope(DType::bf16);
      auto f = [w](const Tensor& h) { return square(matmul(h, w)); };
      y = checkpointed ? nn::checkpoint(f, x) : f(x);
    }
    sum(y).backward();
    return gradients({w});
  };
  CHECK(gradient(true) == gradient(false));
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", 2}});
    Tensor z = dist::distribute(normal(1, {4, 3}), mesh.layout("tp, -")).set_requires_grad();
    Tensor other = dist::distribute(normal(2, {4, 3}), mesh.layout("-, tp"));
    Tensor y = nn::checkpoint([&](const Tensor& h) { return h * other; }, z);
    Tensor loss = sum(y);
    dist::ForbidImplicitRedistribution forbid;
    loss.backward();
    CHECK(distance(z.grad(), other) == 0);
  });
}

TEST_CASE("without gradients it is just a call") {
  Counted model;
  Tensor x = normal(1, {4, 3}, DType::f32);
  {
    NoGrad off;
    CHECK(!nn::checkpoint(model, x).requires_grad());
  }
  CHECK(!nn::checkpoint([](const Tensor& h) { return sin(h); }, x).requires_grad());
  CHECK(nn::checkpoint([](int a) { return a + 1; }, 2) == 3);
  nn::checkpoint([](const Tensor&) {}, x);
  CHECK(model.calls == 1);
}

TEST_CASE("what changed in between is an error") {
  Tensor x = leaf(1, {3}), w = leaf(2, {3});
  auto f = [w](const Tensor& h) { return sin(h) * w; };
  auto check = [&](auto between, std::initializer_list<const char*> words) {
    Tensor h = exp(x), y = sum(nn::checkpoint(f, h));
    between(h);
    check_throws<GradError>([&] { y.backward(); }, words);
    x.zero_grad(), w.zero_grad();
  };
  check(
      [](const Tensor& h) {
        NoGrad off;
        add_(h.detach(), normal(1, {3}));
      },
      {"checkpoint", "written in place"});
  check(
      [&](const Tensor&) {
        NoGrad off;
        mul_(w, 2.0);
      },
      {"checkpoint", "written in place"});
  Tensor y = sum(nn::checkpoint(f, x));
  y.backward();
  check_throws<GradError>([&] { y.backward(); }, {"retain_graph"});
  x.zero_grad();
  Tensor z = sum(nn::checkpoint(f, x));
  z.backward({.retain_graph = true});
  Tensor first = clone(x.grad());
  z.backward();
  CHECK(distance(x.grad(), first * 2.0) == 0);
}

TEST_CASE("a function that is not the same both times, or keeps or differentiates what it should not") {
  Tensor x = leaf(1, {3});
  int calls = 0;
  auto count = [&](const Tensor& h) { return ++calls == 1 ? sin(h) : sum(h); };
  check_throws<GradError>([&] { sum(nn::checkpoint(count, x)).backward(); },
                          {"result 0", "f64[3]", "f64[]", "both times"});
  calls = 0;
  auto number = [&](const Tensor& h) { return std::vector<Tensor>(static_cast<size_t>(++calls), sin(h)); };
  check_throws<GradError>([&] { sum(nn::checkpoint(number, x)[0]).backward(); }, {"1 tensors", "2 when"});
  calls = 0;
  auto detached = [&](const Tensor& h) { return ++calls == 1 ? sin(h) : sin(h.detach()); };
  check_throws<GradError>([&] { sum(nn::checkpoint(detached, x)).backward(); }, {"did not compute on the tape"});
  Tensor kept;
  auto cached = [&](const Tensor& h) { return kept.defined() ? kept : kept = sin(h); };
  check_throws<GradError>([&] { sum(nn::checkpoint(cached, x)).backward(); }, {"did not compute on the tape"});
  Tensor leaked;
  Tensor y = nn::checkpoint([&](const Tensor& h) { return sin(leaked = exp(h)); }, x);
  check_throws<GradError>([&] { sum(y + leaked).backward(); }, {"nn::checkpoint", "return it"});
  auto nested = [](const Tensor& h) {
    Tensor w = normal(1, {3});
    return h * nn::value_and_grad([](const std::vector<Tensor>& v) { return sum(square(v[0])); })({w}).grads[0];
  };
  check_throws<GradError>([&] { nn::checkpoint(nested, x); }, {"first order"});
}

TEST_CASE("an exception in the function leaves everything as it was") {
  Counted model;
  Tensor x = normal(1, {2, 3}, DType::f32).set_requires_grad();
  seed(4);
  int calls = 0, bad = 1;
  auto f = [&](const Tensor& h) {
    Tensor y = model(h);
    if (++calls == bad) throw ValueError("stop");
    return y;
  };
  CHECK_THROWS_AS(nn::checkpoint(f, x), ValueError);
  CHECK(grad_enabled());
  CHECK(sin(x).requires_grad());
  calls = 0, bad = 2;
  seed(4);
  Tensor y = sum(nn::checkpoint(f, x));
  cleave::detail::RandomKey before = cleave::detail::random_state();
  model.eval();
  CHECK_THROWS_AS(y.backward({.retain_graph = true}), ValueError);
  CHECK(cleave::detail::random_state().call == before.call);
  CHECK(!model.training());
  CHECK(!x.grad().defined());
  y.backward();
  Gradients got = gradients({x});
  seed(4);
  model.train();
  sum(model(x)).backward();
  CHECK(gradients({x}) == got);
}

TEST_CASE("a leaf is complete once, when it has its last term, whatever was remembered in between") {
  on_ranks({1, 2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    dist::Layout split = mesh.layout("dp, -"), whole = mesh.layout("-, -");
    std::vector<Tensor> leaves;
    for (uint64_t s : {1, 2, 3}) leaves.push_back(dist::distribute(normal(s, {3, 3}), split).set_requires_grad());
    const Tensor &a = leaves[0], &b = leaves[1], &c = leaves[2];
    auto gathered = [&](const Tensor& t) { return dist::redistribute(t, whole); };
    auto inner = [=](const Tensor& h) { return matmul(h, gathered(b)) + gathered(b); };
    auto f = [=](const Tensor& h) { return sin(matmul(nn::checkpoint(inner, h), gathered(a))) * gathered(b); };
    for (bool unused : {false, true}) {
      Tensor h = sin(a) * b, kept;  // an early use of both
      h = nn::checkpoint(f, dist::redistribute(h, whole));
      kept = gathered(b);  // found again in backward, when its node has run
      h = h + square(kept) + (unused ? h * 0.0 : gathered(c));
      if (unused)  // c is used for a result that nobody uses
        nn::checkpoint([&](const Tensor& t) { return std::pair{sin(t), t * gathered(c)}; }, h).first;
      Tensor loss = sum(square(h));
      std::vector<autograd::Slots> captured(3);
      std::vector<int> completed(3);
      std::vector<std::vector<double>> then(3), last(3);
      auto value = [&](size_t i) { return to_vector<double>(captured[i].sum(leaves[i].impl()->layout).value); };
      auto note = [&](const Tensor& leaf) {
        for (size_t i = 0; i < 3; ++i)
          if (leaf.impl() == leaves[i].impl()) ++completed[i], then[i] = value(i);
      };
      autograd::Root root{loss, autograd::ones_cotangent(loss)};
      autograd::run_backward({&root, 1}, {.wanted = leaves, .captured = &captured, .completed = note});
      for (size_t i = 0; i < (unused ? 2u : 3u); ++i) {
        CHECK(completed[i] == 1);
        CHECK(then[i] == value(i));
      }
      CHECK(completed[2] == (unused ? 0 : 1));
    }
  });
}

TEST_CASE("custom_shard inside and around") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", 2}});
    Tensor x = dist::distribute(normal(1, {4, 3}), mesh.layout("tp, -")).set_requires_grad();
    Tensor w = dist::distribute(normal(2, {3, 3}), mesh.layout("-, -")).set_requires_grad();
    check_same({x, w}, [&](auto call) {
      auto local = nn::custom_shard([](const Tensor& a, const Tensor& b) { return matmul(sin(a), b); }, mesh,
                                    {.in = {"tp, -", "-, -"}, .out = {"tp, -"}});
      auto around = nn::custom_shard(
          [=](const Tensor& a, const Tensor& b) {
            return call([](const Tensor& p, const Tensor& q) { return matmul(sin(p), q); }, a, b);
          },
          mesh, {.in = {"tp, -", "-, -"}, .out = {"tp, -"}});
      return sum(square(call([=](const Tensor& h) { return local(h, w); }, around(x, w))));
    });
  });
}

namespace {

struct Cache {
  std::unique_ptr<int> value;
};
struct Options {
  int calls = 0;
};
struct Takes : nn::Module<Takes> {
  nn::List<Counted> items{this, "items", 2};
  Tensor forward(const Tensor& x, Cache& cache) const { return items[0](x) * static_cast<double>(*cache.value); }
  Tensor forward(const Tensor& x, Options& options) const {
    return items[1](items[0](x)) * static_cast<double>(++options.calls);
  }
};

}  // namespace

TEST_CASE("modules by name: patterns, changes, errors, arguments") {
  Takes model;
  auto marked = [&] {
    std::string out;
    for (const auto& [name, m] : model.named_modules())
      if (m->recomputes()) out += name + ";";
    return out;
  };
  nn::set_recompute(model, {"items.*"});
  CHECK(marked() == "items.0;items.1;");
  nn::set_recompute(model, {"items.1", "items.*.linear"});
  CHECK(marked() == "items.0.linear;items.1;items.1.linear;");
  check_throws<PlanError>(
      [&] {
        nn::set_recompute(model, {"items.0", "itmes.1"});
      },
      {"\"itmes.1\"", "nearest", "items.1"});
  check_throws<PlanError>([&] { nn::set_recompute(model, {"items"}); }, {"items", "no module that can be called"});
  CHECK(marked() == "items.0.linear;items.1;items.1.linear;");
  nn::set_full_recompute(model);
  CHECK(marked() == "items.0;items.1;");
  Counted without;
  check_throws<PlanError>([&] { nn::set_full_recompute(without); }, {"no list"});

  Tensor x = normal(1, {2, 3}, DType::f32);
  Cache cache{std::make_unique<int>(2)};
  sum(model(x, cache)).backward();
  CHECK(model.items[0].calls == 2);
  nn::set_recompute(model, {""});
  check_throws<ValueError>([&] { model(x, cache); }, {"the model", "cannot be copied"});
  Options options;
  Tensor y = sum(model(x, options));
  CHECK(options.calls == 1);
  y.backward();
  CHECK(options.calls == 1);  // the second call has a copy, made before the first
  CHECK(model.items[1].calls == 2);
  nn::set_recompute(model, {});
  CHECK(marked() == "");
  sum(model(x, options)).backward();
  CHECK(model.items[1].calls == 3);
}

TEST_CASE("observers see the second call in backward") {
  struct Spans : Observer {
    std::vector<std::string> seen;
    void begin(const Span& s) override {
      if (s.kind == SpanKind::module || s.kind == SpanKind::scope)
        seen.push_back(std::string(dist::current_phase()) + " " + s.name);
    }
    void end(const Span&) override {}
  } spans;
  Takes model;
  nn::set_recompute(model, {"items.0"});
  Options options;
  Observer::set(&spans);
  sum(model(normal(1, {2, 3}, DType::f32), options)).backward();
  Observer::set(nullptr);
  CHECK(spans.seen == std::vector<std::string>{"forward ", "forward items.0", "forward items.0.linear",
                                               "forward items.0.dropout", "forward items.1", "forward items.1.linear",
                                               "forward items.1.dropout", "backward recompute", "backward items.0",
                                               "backward items.0.linear", "backward items.0.dropout"});
  nn::Profiler profiler({.bounds = false});
  profiler.start();
  sum(model(normal(1, {2, 3}, DType::f32), options)).backward();
  profiler.stop();
  CHECK(profiler.table().find("linear") != std::string::npos);
}
