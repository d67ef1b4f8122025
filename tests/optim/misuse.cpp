// What a training program gets wrong about its optimizer: told before anything has changed, alike on all ranks.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Net : nn::Module<Net> {
  nn::Linear a{this, "a", 4, 5}, b{this, "b", 5, 3};
  Tensor forward(const Tensor& x) const { return sum(square(b(tanh(a(x))))); }
};

struct Case {
  explicit Case(dist::World& world, int stage = 3) : mesh(world, {{"dp", world.size()}}) {
    seed(1);
    place(stage);
  }
  void place(int stage) { nn::shard(model, mesh, nn::zero(model, mesh, plan, {.stage = stage})); }
  void backward() const { model(dist::replicate(normal(2, {6, 4}), mesh)).backward(); }
  std::vector<double> weights() const {
    std::vector<double> out;
    for (const nn::Parameter& p : model.parameters())
      for (double w : to_vector<double>(p.tensor())) out.push_back(w);
    return out;
  }

  dist::DeviceMesh mesh;
  nn::ShardingPlan plan{.forward = {{"input", {"dp, -"}}}};
  Net model = nn::build<Net>({.dtype = DType::f64, .deferred = true});
};

}  // namespace

TEST_CASE("groups changed after the optimizer was made, options and rates that make no sense: a step is refused") {
  using Groups = std::vector<optim::Group<optim::AdamWOptions>>;
  on_ranks({1, 2, 3}, [](dist::World& world) {
    Case c(world);
    auto refused = [&](const std::function<void(optim::AdamW&)>& change, std::initializer_list<const char*> words) {
      optim::AdamW opt({{.parameters = c.model.a.parameters()}, {.parameters = c.model.b.parameters()}});
      auto before = c.weights();
      c.backward();
      change(opt);
      check_throws<ValueError>([&] { opt.step(); }, words);
      CHECK(c.weights() == before);
      CHECK(opt.step_number() == 0);
      opt.zero_grad();
    };
    refused([&](auto& opt) { opt.groups().push_back({.parameters = {c.model.b.weight}}); },
            {"all groups at the start"});
    refused([&](auto& opt) { opt.groups()[0].parameters.push_back(c.model.b.weight); }, {"all groups at the start"});
    refused([&](auto& opt) { opt.groups().pop_back(); }, {"all groups at the start"});
    refused([&](auto& opt) { std::swap(opt.groups()[0], opt.groups()[1]); }, {"all groups at the start"});
    refused([&](auto& opt) { opt.groups()[1].options.beta1 = 1; }, {"[adamw]", "beta1"});
    refused([&](auto& opt) { opt.groups()[1].options.lr = -1; }, {"[adamw]", "lr"});
    refused([&](auto& opt) { opt.set_lr_factor(NAN); }, {"group 0", "nan", "set_lr_factor"});
    refused([&](auto& opt) { opt.groups()[1].schedule = optim::Schedule([](int64_t) { return NAN; }); },
            {"group 1", "step 0", "schedule"});
    optim::AdamW opt(c.model.parameters());
    check_throws<ValueError>([&] { opt.lr(1); }, {"no group 1", "there are 1"});
    c.backward();
    opt.groups()[0].options.lr = 0.5;  // allowed
    opt.step();
    CHECK(opt.lr() == 0.5);
    CHECK_NOTHROW(optim::AdamW(Groups{{.parameters = c.model.parameters()}, {.parameters = {}}}));
  });
}

TEST_CASE("two models with equal names cannot share an optimizer or an average") {
  Net a, b;
  auto both = a.parameters();
  for (const nn::Parameter& p : b.parameters()) both.push_back(p);
  check_throws<ValueError>([&] { optim::AdamW opt(both); }, {"a.weight", "one module", "one optimizer for each"});
  check_throws<ValueError>([&] { optim::EMA ema(both); }, {"a.weight", "one ema for each"});
}

TEST_CASE("state of schedules into an optimizer without, and the other way round") {
  Net net;
  auto make = [&](bool scheduled) {
    std::optional<optim::Schedule> schedule;
    if (scheduled) schedule = optim::warmup(4);
    return optim::SGD(
        std::vector<optim::Group<optim::SGDOptions>>{{net.parameters(), {.momentum = 0.9}, std::move(schedule)}});
  };
  auto with = make(true), without = make(false);
  for (auto* opt : {&with, &without}) {
    net(ones({2, 4})).backward();
    opt->step();
    opt->zero_grad();
  }
  check_throws<ValueError>([&] { make(false).load_state(with.state()); }, {"optimizer.step", "no group"});
  check_throws<ValueError>([&] { make(true).load_state(without.state()); }, {"optimizer.step", "missing"});
  check_throws<ValueError>([&] { optim::Lion(net.parameters()).load_state(without.state()); },
                           {"momentum_buffer", "keeps exp_avg, step, master"});
  check_throws<ValueError>([&] { optim::SGD(net.a.parameters(), {.momentum = 0.9}).load_state(without.state()); },
                           {"b.", "no such parameter"});
  auto state = without.state();
  state.emplace_back("optimizer.step", tensor(std::vector<int64_t>{3}, {}));
  auto goes_on = make(true);
  goes_on.load_state(state);
  CHECK(goes_on.step_number() == 3);
}

TEST_CASE("an average of weights that are not made yet; a model sharded while averages are in its place") {
  on_ranks({2, 3}, [](dist::World& world) {
    auto deferred = nn::build<Net>({.deferred = true});
    optim::EMA early(deferred.parameters());
    check_throws<ValueError>([&] { early.update(); }, {"deferred", "shard"});
    check_throws<ValueError>([&] { early.swap(); }, {"deferred", "shard"});

    Case c(world);
    optim::SGD opt(c.model.parameters(), {.lr = 0.1});
    optim::EMA ema(opt, {.decay = 0.5});
    c.backward();
    opt.step();
    opt.zero_grad();
    ema.update();
    auto own = c.weights();
    ema.swap();
    CHECK(c.weights() != own);
    c.place(1);
    ema.swap();
    CHECK(c.weights() == own);
  });
}
