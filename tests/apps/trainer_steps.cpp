// What a step takes from its number and its options: its rate and masks, clipping, averages, one reduction of all
// parts.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/view.h>
#include <cleave/optim/adam.h>
#include <cleave/optim/muon.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "gpt/optimizer.h"
#include "gpt/trainer.h"

using namespace gpt;
using namespace cleave;

namespace {

TrainOptions options_for(double dropout = 0, DType dtype = DType::f64) {
  return {
      .model = completed({.vocab = 13, .layers = 1, .dim = 12, .heads = 2, .ffn = 10, .seq = 6, .dropout = dropout}),
      .step = {.batch = 4, .dtype = dtype},
      .update = {.optimizer = "sgd", .lr = 0.01, .weight_decay = 0, .clip = 0},
      .steps = 4};
}

Batch some_batch(const Trainer& trainer, const std::vector<int64_t>& rows = {4}) {
  Batch batch;
  uint64_t seed = 1;
  for (int64_t n : rows) {
    Batch part = batch_of(randint(0, 13, {n, 6}, {.seed = seed}), randint(0, 13, {n, 6}, {.seed = seed + 1}),
                          trainer.token_layout());
    batch.parts.push_back(part.parts[0]);
    batch.tokens += part.tokens;
    seed += 2;
  }
  return batch;
}

using Values = std::map<std::string, Tensor>;
Values weights_of(const Trainer& t) {
  Values out;
  for (const auto& [name, p] : t.model().named_parameters()) out.emplace(name, clone(p.tensor().detach()));
  return out;
}

// How far the first step, made as number `step`, goes along the gradient; all elements agree.
double rate_of(const TrainOptions& o, int64_t step) {
  Trainer t(o, {});
  t.gradients(some_batch(t), 1);
  Values before = weights_of(t), gradients;
  for (const auto& [name, p] : t.model().named_parameters()) gradients.emplace(name, clone(p.grad()));
  double norm = t.gradient_norm(), rate = -1;
  t.update(step, norm);
  for (const auto& [name, now] : weights_of(t)) {
    auto w0 = to_vector<double>(before.at(name)), w1 = to_vector<double>(now),
         g = to_vector<double>(gradients.at(name));
    for (size_t i = 0; i < g.size(); ++i) {
      if (std::abs(g[i]) < 1e-3) continue;
      if (rate < 0) rate = (w0[i] - w1[i]) / g[i];
      CHECK((w0[i] - w1[i]) / g[i] == doctest::Approx(rate).epsilon(1e-8));
    }
  }
  return rate;
}

}  // namespace

TEST_CASE("the rate of each step is the schedule's: warm-up, then a cosine down to a thirtieth") {
  TrainOptions o = options_for();
  for (int64_t step = 1; step <= 4; ++step) {
    double angle = static_cast<double>(step - 1) / 4 * 3.14159265358979323846;
    double expected = 0.01 * (1.0 / 30 + 29.0 / 30 * (1 + std::cos(angle)) / 2);
    CHECK(rate_of(o, step) == doctest::Approx(expected).epsilon(1e-8));
    CHECK(Trainer(o, {}).lr(step) == doctest::Approx(expected));
  }
  o.update.warmup = 10;  // more than there are steps: the last one is left to the cosine
  for (int64_t step = 1; step <= 3; ++step)
    CHECK(rate_of(o, step) == doctest::Approx(0.01 * static_cast<double>(step) / 3).epsilon(1e-8));
  o.update.warmup.reset();
  o.steps = 30;
  CHECK(Trainer(o, {}).lr(1) == doctest::Approx(0.01 / 3));
  CHECK(Trainer(o, {}).lr(3) == doctest::Approx(0.01));
}

TEST_CASE("clipping shortens the step to the bound, and no bound leaves it") {
  TrainOptions o = options_for();
  Trainer t(o, {});
  t.gradients(some_batch(t), 1);
  o.update.clip = t.gradient_norm() / 2;
  CHECK(rate_of(o, 1) == doctest::Approx(0.005).epsilon(1e-4));
  o.update.clip = t.gradient_norm() * 2;
  CHECK(rate_of(o, 1) == doctest::Approx(0.01).epsilon(1e-8));
}

TEST_CASE("masks are the step's own; an evaluation has none, and leaves them on") {
  Trainer t(options_for(0.5), {}), plain(options_for(), {});
  Batch batch = some_batch(t);
  auto loss = [&](Trainer& trainer, int64_t step) { return item<double>(trainer.gradients(batch, step)); };
  double first = loss(t, 1);
  CHECK(loss(t, 1) == first);
  CHECK(std::abs(loss(t, 2) - first) > 1e-6);
  double evaluated = t.evaluate(batch);
  CHECK(evaluated == doctest::Approx(loss(plain, 1) * static_cast<double>(batch.tokens)).epsilon(1e-12));
  CHECK(loss(t, 1) == first);
}

TEST_CASE("averages evaluate, not the weights") {
  TrainOptions o = options_for();
  o.update.lr = 0.5;
  Trainer plain(o, {});
  o.update.ema = 0.5;
  Trainer averaged(o, {});
  Batch batch = some_batch(plain);
  Values start = weights_of(plain);
  plain.step(batch, 1);
  averaged.step(batch, 1);
  double of_weights = plain.evaluate(batch);
  NoGrad off;
  for (const auto& [name, p] : plain.model().named_parameters())
    copy_(p.tensor(), (p.tensor().detach() + start.at(name)) * 0.5);
  CHECK(averaged.evaluate(batch) == doctest::Approx(plain.evaluate(batch)).epsilon(1e-12));
  CHECK(std::abs(averaged.evaluate(batch) - of_weights) > 1e-3);
}

TEST_CASE("an overflow is the loss scale's only while that can fall; averages do not move by it") {
  for (double fixed : {0.0, 1024.0})
    for (double scale : {65536.0, 1.0}) {
      CAPTURE(fixed);
      CAPTURE(scale);
      TrainOptions o = options_for(0, DType::f16);
      o.step.loss_scale = fixed;
      o.update.ema = 0.5;
      Trainer t(o, {});
      REQUIRE(t.scaler());
      auto state = t.scaler()->state();
      state[0].second = full({}, scale, {.dtype = DType::f64});
      if (fixed == 0) t.scaler()->load_state(state);
      double before = t.scaler()->scale();
      t.model().parameters()[0].tensor().add_hook(
          [](const Tensor& g) { return g * std::numeric_limits<double>::infinity(); });
      StepResult r = t.step(some_batch(t), 1);
      bool falls = fixed == 0 && scale > 1;
      CHECK(r.overflow == falls);
      CHECK(r.not_finite.empty() == falls);
      CHECK(t.scaler()->scale() == (falls ? before / 2 : before));
      CHECK(item<int64_t>(t.ema()->state().back().second) == 0);
    }
  TrainOptions cast = options_for(0, DType::f32);
  cast.step.autocast = DType::f16;
  CHECK(Trainer(cast, {}).scaler());
  cast.step.autocast = DType::bf16;
  CHECK(!Trainer(cast, {}).scaler());
}

TEST_CASE("gradients of a batch in parts are reduced once") {
  dist::run_ranks({.ranks = 2, .checked = 0}, [](dist::World& world) {
    TrainOptions o = options_for();
    Trainer t(o, place(world, o.model, "dp=2", "dp"));
    for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{4}, {2, 2}, {2, 1, 1}}) {
      dist::record_collectives(true);
      t.gradients(some_batch(t, rows), 1);
      int64_t bytes = 0;
      for (const auto& e : dist::recorded_collectives())
        if (e.bytes > 64) bytes += e.bytes;
      dist::record_collectives(false);
      CHECK(bytes == parameter_count(t.model()) * 8);
      t.optimizer().zero_grad();
    }
  });
}

TEST_CASE("what decays, and what is orthogonalized") {
  Gpt model = nn::build<Gpt>({}, completed({.vocab = 13, .layers = 1, .dim = 12, .heads = 2, .seq = 6}));
  size_t all = model.parameters().size();
  auto adamw = make_optimizer(model, {.optimizer = "adamw", .weight_decay = 0.3});
  auto& groups = dynamic_cast<optim::AdamW&>(*adamw).groups();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].options.weight_decay == 0.3);
  CHECK(groups[1].options.weight_decay == 0);
  for (const auto& p : groups[0].parameters) CHECK(p.shape().rank() >= 2);
  for (const auto& p : groups[1].parameters) CHECK((p.shape().rank() < 2 || p.name().ends_with("bias")));
  auto muon = make_optimizer(model, {.optimizer = "muon", .weight_decay = 0.3});
  auto& parts = dynamic_cast<optim::Muon&>(*muon).groups();
  REQUIRE(parts.size() == 2);
  CHECK(!parts[0].parameters.empty());
  CHECK(parts[0].parameters.size() + parts[1].parameters.size() == all);
  for (const auto& p : parts[0].parameters) CHECK((p.shape().rank() == 2 && p.name().starts_with("blocks.")));
  for (const auto& p : parts[1].parameters) CHECK((p.shape().rank() != 2 || !p.name().starts_with("blocks.")));
  CHECK(!parts[1].options.orthogonal);
}
