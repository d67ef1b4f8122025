// Every optimizer, under every layout of its parameters, is the optimizer on one device.
#include "nn/support.h"

#include <cleave/core/observer.h>
#include <cleave/dist/layout.h>
#include <cleave/ops/row_cache.h>

#include <map>
#include <memory>

using namespace cleave;
using namespace cleave::test;

namespace {

using Parameters = std::vector<nn::Parameter>;
using Make = std::function<std::unique_ptr<optim::Optimizer>(const Parameters&)>;

template <class O, class Options>
Make make(const Options& options) {
  return [options](const Parameters& p) { return std::make_unique<O>(p, options); };
}

const std::map<std::string, Make> kOptimizers{
    {"SGD", make<optim::SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9})},
    {"Adam", make<optim::Adam>(optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1})},
    {"AdamW", make<optim::AdamW>(optim::AdamWOptions{.lr = 0.01})},
    {"Adagrad", make<optim::Adagrad>(optim::AdagradOptions{})},
    {"RMSProp", make<optim::RMSProp>(optim::RMSPropOptions{.lr = 0.01, .momentum = 0.9, .centered = true})},
    {"Lion", make<optim::Lion>(optim::LionOptions{.lr = 0.01})},
    {"LAMB", make<optim::LAMB>(optim::LAMBOptions{.lr = 0.01, .weight_decay = 0.1})},
    {"Adafactor", make<optim::Adafactor>(optim::AdafactorOptions{.beta1 = 0.9})},
    {"Muon", make<optim::Muon>(optim::MuonOptions{.lr = 0.01, .rest = optim::AdamWOptions{}})}};

// Odd sizes; a tied weight, one used twice, a batch of matrices, rows fewer than ranks, and an empty parameter.
struct Net : nn::Module<Net> {
  nn::Linear up{this, "up", 5, 7}, down{this, "down", 7, 5};
  nn::Parameter tie{this, "tie", up.weight};
  nn::Parameter heads{this, "heads", Shape{3, 5, 2}, nn::init::normal()};
  nn::Parameter short_one{this, "short_one", Shape{1, 5}, nn::init::normal()};
  nn::Parameter empty{this, "empty", Shape{0, 5}};
  Tensor forward(const Tensor& x) const {
    Tensor h = matmul(tanh(up(x)), static_cast<Tensor>(tie));
    return down(tanh(up(h))) + matmul(h, transpose(short_one, 0, 1)) + sum(square(matmul(x, heads))) * 0.01 +
           sum(static_cast<Tensor>(empty));
  }
};

Net make_net(DType dtype = DType::f64) {
  seed(1);
  return nn::build<Net>({.dtype = dtype});
}

// The loss is a mean: with a sum, rates of 0.01 make the cubic in `heads` run away (from 300 to 1e32 in four steps of
// SGD), and so does any rounding. Returns the last loss.
double train(const Net& net, optim::Optimizer& opt, int from, int to) {
  double last = 0;
  for (int step = from; step < to; ++step) {
    Tensor x = normal(static_cast<uint64_t>(step), {8, 5}, net.up.weight.dtype());
    if (net.is_sharded()) x = dist::replicate(x, net.mesh());
    Tensor loss = mean(square(net(x) - x));
    loss.backward();
    opt.step();
    opt.zero_grad();
    last = item<double>(loss);
  }
  return last;
}

double difference(const Net& a, const Net& b) {
  auto p = a.parameters(), q = b.parameters();
  double d = 0;
  for (size_t i = 0; i < p.size(); ++i) d = std::max(d, distance(p[i].tensor(), q[i].tensor()));
  return d;
}

using Dict = std::vector<std::pair<std::string, std::string>>;
const nn::ShardingPlan kPlans[] = {
    {.parameter = {{"up.weight", "tp, -"}, {"up.bias", "tp"}, {"down.weight", "-, tp"}, {"heads", "tp, -, -"}}},
    {.parameter =
         {{"up.weight", "-, tp.dp"}, {"down.weight", "dp.tp, -"}, {"heads", "-, dp, tp"}, {"short_one", "tp, dp"}}},
    {.parameter = {{"up.weight", "... => ... => dp, ..."}, {"heads", "... => ... => -, dp, -"}},
     .forward = {{"input", {"dp, -"}}}},
    {.parameter = {{"*.weight", "dp, ... => ..."},
                   {"heads", "-, -, dp => ..."},
                   {"short_one", "dp, - => ..."},
                   {"empty", "dp, tp"}},
     .forward = {{"input", {"dp, -"}}}}};

std::vector<optim::NamedTensor> gathered(std::vector<optim::NamedTensor> state) {
  for (auto& [name, t] : state) t = clone(dist::full_tensor(t));
  return state;
}

}  // namespace

TEST_CASE("ten steps of every optimizer: the layout does not matter") {
  for (const auto& [name, make] : kOptimizers) {
    CAPTURE(name);
    Net one = make_net(), nudged = make_net();
    auto reference = make(one.parameters()), beside = make(nudged.parameters());
    train(one, *reference, 0, 10);
    for (const auto& p : nudged.parameters()) p.assign(p.tensor().detach() * (1 + 0x1p-52));
    double loss = train(nudged, *beside, 0, 10);
    // One device itself: it trains, and does not blow a last bit up.
    CHECK(loss < 10);
    CHECK(difference(nudged, one) < 1e-13);
    on_ranks({2, 3, 4}, [&](dist::World& world) {
      CAPTURE(name);
      for (const auto& plan : kPlans) {
        Net many = make_net();
        auto opt = make(many.parameters());
        nn::shard(many, grid(world), plan);
        train(many, *opt, 0, 10);
        CHECK(difference(many, one) < 1e-12);
      }
    });
  }
}

TEST_CASE("halves of every optimizer, given an f32 run's gradients, have its weights as masters, bit for bit") {
  for (const auto& [name, make] : kOptimizers)
    for (DType half : {DType::bf16, DType::f16}) {
      CAPTURE(name);
      Tensor w = cast(normal(1, {4, 3}, DType::f32), half), exact = cast(w, DType::f32);
      auto opt = make(optim::parameters_of({w})), reference = make(optim::parameters_of({exact}));
      for (uint64_t k = 0; k < 5; ++k) {
        Tensor g = cast(normal(k + 9, {4, 3}, DType::f32), half);
        sum(w * g).backward();
        sum(exact * cast(g, DType::f32)).backward();
        for (auto* o : {opt.get(), reference.get()}) {
          o->step();
          o->zero_grad();
        }
      }
      CHECK(equal(opt->master(0), exact));
      CHECK(equal(w, cast(exact.detach(), half)));
      for (auto& [state, t] : opt->state())
        if (t.dim() > 0) CHECK(t.dtype() == DType::f32);
    }
}

TEST_CASE("state of every optimizer: loaded before the first step; equal bits on the same layout, near on another") {
  on_ranks({4}, [&](dist::World& world) {
    for (const auto& [name, make] : kOptimizers) {
      CAPTURE(name);
      Net straight = make_net();
      nn::shard(straight, grid(world), kPlans[1]);
      auto opt = make(straight.parameters());
      train(straight, *opt, 0, 2);
      auto state = gathered(opt->state());
      std::vector<Tensor> weights;
      for (const auto& p : straight.parameters()) weights.push_back(clone(dist::full_tensor(p.tensor())).detach());
      train(straight, *opt, 2, 4);
      for (const auto& plan : {kPlans[1], kPlans[0], kPlans[3]}) {
        Net resumed = make_net();
        auto next = make(resumed.parameters());
        next->load_state(state);
        nn::shard(resumed, grid(world, &plan == &kPlans[0]), plan);
        for (size_t i = 0; i < weights.size(); ++i) resumed.parameters()[i].assign(weights[i]);
        train(resumed, *next, 2, 4);
        CHECK(difference(resumed, straight) < 1e-12);
      }
      Net resumed = make_net();
      nn::shard(resumed, grid(world), kPlans[1]);
      auto next = make(resumed.parameters());
      next->load_state(state);
      for (size_t i = 0; i < weights.size(); ++i) resumed.parameters()[i].assign(weights[i]);
      train(resumed, *next, 2, 4);
      CHECK(difference(resumed, straight) == 0);
      auto a = gathered(opt->state()), b = gathered(next->state());
      REQUIRE(a.size() == b.size());
      for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i].second, b[i].second));
    }
  });
}

TEST_CASE("load_state changes nothing unless all of it is right") {
  Tensor w = normal(1, {3, 4}, DType::f32);
  optim::Adafactor opt({w}, {});
  sum(square(w)).backward();
  opt.step();
  auto state = gathered(opt.state());
  CHECK(state.size() == 3);
  for (auto& [name, t] : state) t = t.dim() ? clone(t) : t;
  auto with = [&](const char* name, const Tensor& t) {
    auto changed = opt.state();
    for (auto& [n, old] : changed) old = n == "0.step" ? tensor<int64_t>({77}, {}) : old;
    changed.emplace_back(name, t);
    return changed;
  };
  check_throws<ValueError>([&] { opt.load_state(with("0.speed", zeros({}))); }, {"0.speed"});
  check_throws<ValueError>([&] { opt.load_state(with("0.row_var", zeros({3, 1}))); }, {"0.row_var", "twice"});
  check_throws<ShapeError>([&] { opt.load_state(with("0.exp_avg", zeros({4, 3}))); }, {"0.exp_avg", "[3, 4]"});
  check_throws<DTypeError>(
      [&] {
        opt.load_state(with("0.exp_avg", zeros({3, 4}, {.dtype = DType::i64})));
      },
      {"0.exp_avg", "floating"});
  check_throws<DTypeError>([&] { opt.load_state({{"0.step", zeros({})}}); }, {"0.step", "integer"});
  check_throws<ShapeError>([&] { opt.load_state({{"0.row_var", zeros({3, 4})}}); }, {"0.row_var", "[3, 1]"});
  optim::Adafactor fresh({normal(1, {3, 4}, DType::f32)}, {});
  check_throws<ValueError>([&] { fresh.load_state({{"0.row_var", zeros({3, 1})}}); }, {"0.step", "missing"});
  auto after = opt.state();
  for (size_t i = 0; i < state.size(); ++i) CHECK(equal(after[i].second, state[i].second));
}

TEST_CASE("norms of all parameters travel together") {
  on_ranks({2}, [](dist::World& world) {
    for (auto [name, calls] : {std::pair{"LAMB", 1}, {"Adafactor", 2}}) {
      CAPTURE(std::string(name));
      std::vector<Tensor> w;
      for (uint64_t k = 0; k < 5; ++k) w.push_back(dist::distribute(normal(k, {4, 6}), grid(world).layout("tp, -")));
      auto opt = kOptimizers.at(name)(optim::parameters_of(w));
      for (const Tensor& x : w) sum(square(x)).backward();
      dist::reset_comm_counts();
      opt->step();
      int64_t all = 0;
      for (const auto& c : dist::comm_counts()) all += c.count;
      CHECK(all == calls);
    }
  });
}

namespace {

struct Products : Observer {
  int count = 0;
  void begin(const Span& span) override { count += span.kind == SpanKind::op && std::string(span.name) == "matmul"; }
  void end(const Span&) override {}
};

}  // namespace

TEST_CASE("Muon: alike matrices are dealt out over the ranks that split them; the bits are one device's") {
  const Shape shapes[] = {{6, 5}, {6, 5}, {4, 4}, {6, 5}, {6, 5}, {6, 5}};
  auto starts = [&] {
    std::vector<Tensor> w;
    for (uint64_t k = 0; k < 6; ++k) w.push_back(normal(k, shapes[k], DType::f32));
    return w;
  };
  auto step = [&](std::vector<Tensor>& w, optim::Muon& opt, const dist::DeviceMesh* mesh) {
    for (uint64_t k = 0; k < 6; ++k) {
      Tensor g = normal(k + 9, shapes[k], DType::f32);
      sum(w[k] * (mesh ? dist::replicate(g, *mesh) : g)).backward();
    }
    opt.step();
    opt.zero_grad();
  };
  std::vector<Tensor> plain = starts();
  optim::Muon reference(plain, {.lr = 0.1});
  for (int k = 0; k < 2; ++k) step(plain, reference, nullptr);
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    for (const char* text : {"dp, -", "-, dp", "-, -"}) {
      CAPTURE(text);
      std::vector<Tensor> w;
      for (const Tensor& x : starts()) w.push_back(dist::distribute(x, mesh.layout(text)));
      optim::Muon opt(w, {.lr = 0.1});
      step(w, opt, &mesh);
      dist::reset_comm_counts();
      Products products;
      Observer* before = Observer::set(&products);
      step(w, opt, &mesh);
      Observer::set(before);
      for (size_t k = 0; k < w.size(); ++k) CHECK(equal(dist::full_tensor(w[k]), plain[k]));
      // 5 iterations of 3 products: of this rank's share of 5 matrices and of 1, or of all.
      bool split = text != std::string("-, -");
      int64_t n = world.size(), rank = mesh.coordinate("dp");
      int64_t share = split ? dist::balanced_block(5, n, rank).size + dist::balanced_block(1, n, rank).size : 6;
      CHECK(products.count == 15 * share);
      int64_t exchanges = 0, others = 0;
      for (const auto& c : dist::comm_counts())
        if (c.phase == "optimizer") (c.kind == dist::CollectiveKind::all_to_all ? exchanges : others) += c.count;
      CHECK(exchanges == (split && n > 1 ? 4 : 0));
      CHECK(others == 0);
    }
  });
}

TEST_CASE("matrices of one shape that lie otherwise, on other meshes or in another dtype are no pair") {
  const DType dtypes[] = {DType::f64, DType::f64, DType::f64, DType::f32};
  auto starts = [&] {
    std::vector<Tensor> w;
    for (uint64_t k = 0; k < 4; ++k) w.push_back(normal(k, {6, 6}, dtypes[k]));
    return w;
  };
  for (const char* name : {"LAMB", "Muon", "Adafactor"}) {
    CAPTURE(name);
    auto step = [&](std::vector<Tensor>& w) {
      auto opt = kOptimizers.at(name)(optim::parameters_of(w));
      for (uint64_t t = 0; t < 2; ++t) {
        for (uint64_t k = 0; k < 4; ++k) {
          Tensor g = normal(k + 9 * t + 9, {6, 6}, dtypes[k]);
          sum(w[k] * (w[k].is_distributed() ? dist::replicate(g, w[k].layout().mesh()) : g)).backward();
        }
        opt->step();
        opt->zero_grad();
      }
    };
    std::vector<Tensor> plain = starts();
    step(plain);
    on_ranks({4}, [&](dist::World& world) {
      dist::DeviceMesh line(world, {{"x", 4}}), square(world, {{"y", 2}, {"z", 2}});
      const dist::Layout layouts[] = {line.layout("x, -"), line.layout("-, x"), square.layout("y, -"),
                                      line.layout("x, -")};
      std::vector<Tensor> w = starts();
      for (size_t k = 0; k < 4; ++k) w[k] = dist::distribute(w[k], layouts[k]);
      step(w);
      for (size_t k = 0; k < 4; ++k) CHECK(distance(w[k], plain[k]) < (dtypes[k] == DType::f64 ? 1e-12 : 1e-5));
    });
  }
}

namespace {

struct Kernels : Observer {
  std::vector<std::string> names;
  void begin(const Span& span) override {
    if (span.kind == SpanKind::kernel) names.emplace_back(span.name);
  }
  void end(const Span&) override {}
};

}  // namespace

TEST_CASE("element by element, a step is one kernel for each parameter and takes no room; AdamW's of 16 bits too") {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const char* name : {"SGD", "Adam", "AdamW", "Adagrad", "RMSProp", "Lion"}) {
      if (is_half(dtype) && std::string(name).substr(0, 4) != "Adam") continue;
      CAPTURE(std::string(name));
      std::vector<Tensor> w;
      for (uint64_t k = 0; k < 3; ++k) w.push_back(cast(normal(k, {70, 50}, DType::f32), dtype));
      auto opt = kOptimizers.at(name)(optim::parameters_of(w));
      auto backward = [&] {
        opt->zero_grad();
        for (const Tensor& x : w) sum(square(x)).backward();
      };
      backward();
      opt->step();
      backward();
      Kernels kernels;
      reset_peak_memory();
      int64_t active = memory_stats().active;
      Observer* before = Observer::set(&kernels);
      opt->step();
      Observer::set(before);
      CHECK(kernels.names.size() == 3);
      CHECK(memory_stats().peak - active < 1024);
    }
}

TEST_CASE("a thousand steps of every optimizer do not grow the rule cache") {
  on_ranks({2}, [](dist::World& world) {
    for (const auto& [name, make] : kOptimizers) {
      CAPTURE(name);
      Tensor w = dist::distribute(normal(1, {2, 3}), grid(world).layout("tp, -"));
      auto opt = make(optim::parameters_of({w}));
      size_t size = 0;
      for (int k = 0; k < 1000; ++k) {
        sum(square(w)).backward();
        opt->step();
        opt->zero_grad();
        if (k == 2) size = row_cache_size();
      }
      CHECK(row_cache_size() == size);
    }
  });
}

TEST_CASE("groups have schedules of their own, whose place is state") {
  Tensor a = zeros({1}, {.dtype = DType::f64}), b = zeros({1}, {.dtype = DType::f64});
  auto p = optim::parameters_of({a, b});
  auto groups = [&] {
    return std::vector<optim::Group<optim::SGDOptions>>{
        {.parameters = {p[0]}, .options = {.lr = 1}, .schedule = optim::linear(1, 0, 4)},
        {.parameters = {p[1]}, .options = {.lr = 1}}};
  };
  optim::SGD opt(groups());
  opt.set_lr_factor(0.5);
  for (int k = 0; k < 2; ++k) {
    sum(a + b).backward();
    opt.step();
    opt.zero_grad();
  }
  CHECK(item<double>(a) == -0.5 * (1 + 0.75));
  CHECK(item<double>(b) == -1);
  CHECK(opt.lr() == 0.25);
  CHECK(opt.lr(1) == 0.5);
  optim::SGD resumed(groups());
  resumed.load_state(opt.state());
  CHECK(resumed.step_number() == 2);
  resumed.set_step(3);
  CHECK(resumed.lr() == 0.25);
  check_throws<ValueError>([&] { resumed.set_step(-1); }, {"-1"});
}

TEST_CASE("momentum that is turned on later starts as at a first step; rates of others go by the schedule alone") {
  Tensor w = zeros({1}, {.dtype = DType::f64});
  optim::SGD opt({w}, {.lr = 1});
  auto step = [&](optim::Optimizer& o) {
    sum(w).backward();
    o.step();
    o.zero_grad();
  };
  step(opt);
  opt.groups()[0].options.momentum = 0.5;
  opt.groups()[0].options.dampening = 0.5;
  step(opt);  // the buffer is the gradient
  CHECK(item<double>(w) == -2);
  step(opt);  // 0.5 + 0.5
  CHECK(item<double>(w) == -3);
  optim::Muon rest({w}, {.lr = 0, .rest = optim::AdamWOptions{.lr = 1, .eps = 0, .weight_decay = 0}});
  rest.set_lr_factor(0.5);
  step(rest);
  CHECK(item<double>(w) == doctest::Approx(-3.5));
}

TEST_CASE("options out of range, and Muon without an optimizer for the rest") {
  Tensor w = zeros({2, 2}), bias = zeros({2});
  check_throws<ValueError>([&] { optim::Lion opt({w}, {.beta1 = 1}); }, {"lion", "beta1", "[0, 1)"});
  check_throws<ValueError>([&] { optim::LAMB opt({w}, {.lr = -1}); }, {"lamb", "lr", "negative"});
  check_throws<ValueError>([&] { optim::Adafactor opt({w}, {.clip = 0}); }, {"adafactor", "clip"});
  check_throws<ValueError>([&] { optim::RMSProp opt({w}, {.alpha = 2}); }, {"rmsprop", "alpha"});
  check_throws<ValueError>([&] { optim::Adagrad opt({w}, {.eps = -1}); }, {"adagrad", "eps"});
  check_throws<ValueError>([&] { optim::Muon opt({w}, {.steps = 0}); }, {"muon", "steps"});
  check_throws<ShapeError>([&] { optim::Muon opt({w, bias}, {}); }, {"muon", "[2]", "rest"});
}
