// Steps of the trainer: batches in parts, numbers that are not finite.
#include "gpt/trainer.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

using namespace gpt;
using namespace cleave;

namespace {

const Config kModel = completed({.vocab = 13, .layers = 1, .dim = 12, .heads = 2, .ffn = 10, .seq = 6, .tied = true});

TrainOptions options_for(DType dtype = DType::f64) {
  return {.model = kModel, .step = {.batch = 7, .dtype = dtype}, .update = {.lr = 0.01}, .steps = 4};
}

// Rows of 6 targets, of which the first `valid[row]` count.
Batch batch_in_parts(const std::vector<int64_t>& valid, const std::vector<int64_t>& rows_of_parts,
                     const Trainer& trainer) {
  auto rows = static_cast<int64_t>(valid.size());
  Tensor ids = randint(0, 13, {rows, 6}, {.seed = 1}), random = randint(0, 13, {rows, 6}, {.seed = 2});
  std::vector<int64_t> targets = to_vector<int64_t>(random), inputs = to_vector<int64_t>(ids);
  Batch batch;
  int64_t row = 0;
  for (int64_t count : rows_of_parts) {
    nn::MicroBatch part{.ids = {}, .targets = {}, .first_row = row, .tokens = 0};
    std::vector<int64_t> i, t;
    for (int64_t r = row; r < row + count; ++r) {
      for (int64_t c = 0; c < 6; ++c) {
        auto at = static_cast<size_t>(r * 6 + c);
        i.push_back(inputs[at]);
        t.push_back(c < valid[static_cast<size_t>(r)] ? targets[at] : -100);
      }
      part.tokens += valid[static_cast<size_t>(r)];
    }
    Batch placed = batch_of(tensor(i, {count, 6}), tensor(t, {count, 6}), trainer.token_layout());
    part.ids = placed.parts[0].ids;
    part.targets = placed.parts[0].targets;
    batch.tokens += part.tokens;
    batch.parts.push_back(part);
    row += count;
  }
  return batch;
}

std::map<std::string, std::vector<double>> gradients_of(const Trainer& trainer) {
  std::map<std::string, std::vector<double>> out;
  for (auto& [name, p] : trainer.model().named_parameters()) out[name] = to_vector<double>(dist::full_tensor(p.grad()));
  return out;
}

void check_close(const std::map<std::string, std::vector<double>>& a,
                 const std::map<std::string, std::vector<double>>& b) {
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i)
      REQUIRE_MESSAGE(values[i] == doctest::Approx(b.at(name)[i]).epsilon(1e-10).scale(1e-3), name);
}

void poison(const Tensor& gradient) {
  Tensor block = gradient.local();
  if (numel(block)) block.data<double>()[0] = std::numeric_limits<double>::infinity();
}

}  // namespace

TEST_CASE("a batch in parts, with tokens that do not count, has the gradient of the whole, in any order") {
  const std::vector<int64_t> valid = {1, 4, 6, 0, 6, 2, 5};
  Trainer whole(options_for(), {});
  Tensor loss = whole.gradients(batch_in_parts(valid, {7}, whole), 1);
  auto expected = gradients_of(whole);
  for (const std::vector<int64_t>& parts :
       std::vector<std::vector<int64_t>>{{1, 6}, {3, 1, 3}, {1, 1, 1, 1, 1, 1, 1}}) {
    Trainer split(options_for(), {});
    Batch batch = batch_in_parts(valid, parts, split);
    CHECK(item<double>(split.gradients(batch, 1)) == doctest::Approx(item<double>(loss)).epsilon(1e-12));
    check_close(gradients_of(split), expected);
    Trainer turned(options_for(), {});
    std::reverse(batch.parts.begin(), batch.parts.end());
    turned.gradients(batch, 1);
    check_close(gradients_of(turned), expected);
  }
}

TEST_CASE("ranks whose tokens do not count, and parts, on every kind of mesh") {
  Trainer single(options_for(), {});
  const std::vector<int64_t> valid = {0, 0, 0, 5, 1, 6, 2};  // nothing on the first data rank
  single.gradients(batch_in_parts(valid, {7}, single), 1);
  auto expected = gradients_of(single);
  for (auto [mesh, plan, ranks] : {std::tuple("dp=2", "dp", 2), std::tuple("dp=3", "dp", 3),
                                   std::tuple("dp=2,tp=2", "dp_tp_sp", 4), std::tuple("tp=2", "tp", 2)}) {
    dist::run_ranks({.ranks = ranks}, [&, mesh = mesh, plan = plan](dist::World& world) {
      for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{{7}, {3, 4}, {2, 2, 2, 1}}) {
        Trainer split(options_for(), place(world, kModel, mesh, plan));
        split.gradients(batch_in_parts(valid, parts, split), 1);
        check_close(gradients_of(split), expected);
      }
    });
  }
}

TEST_CASE("windows split over ranks, by rows or along the sequence, have the loss and the gradients of one device") {
  Trainer single(options_for(), {});
  const std::vector<int64_t> valid = {6, 3, 0, 5, 1, 6, 2};
  double loss = item<double>(single.gradients(batch_in_parts(valid, {7}, single), 1));
  auto expected = gradients_of(single);
  for (const char* layout : {"-, cp", "cp, -"}) {
    dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
      Placement placement{dist::DeviceMesh(world, {{"cp", 2}}), "cp", {.forward = {{"input", {layout}}}}};
      Trainer split(options_for(), placement);
      Batch batch = batch_in_parts(valid, {3, 4}, split);
      CHECK(to_string(batch.parts[0].ids.layout()) == layout);
      CHECK(item<double>(split.gradients(batch, 1)) == doctest::Approx(loss).epsilon(1e-12));
      check_close(gradients_of(split), expected);
    });
  }
}

TEST_CASE("activations made again and a loss in chunks change no gradient, however the model is split") {
  const std::vector<int64_t> valid = {6, 3, 0, 5, 1, 6, 2};
  TrainOptions plain = options_for(), saving = options_for();
  plain.model.dropout = saving.model.dropout = 0.2;
  saving.step.recompute = {"all"};
  saving.step.loss_chunk = 4;
  for (auto [mesh, plan, ranks] :
       {std::tuple("dp=1", "dp", 1), std::tuple("dp=2,tp=2", "dp_tp_sp", 4), std::tuple("tp=3", "tp", 3)}) {
    dist::run_ranks({.ranks = ranks}, [&, mesh = mesh, plan = plan](dist::World& world) {
      Trainer a(plain, place(world, kModel, mesh, plan)), b(saving, place(world, kModel, mesh, plan));
      Batch batch = batch_in_parts(valid, {3, 4}, a);
      double loss = item<double>(a.gradients(batch, 1));
      CHECK(item<double>(b.gradients(batch, 1)) == doctest::Approx(loss).epsilon(1e-12));
      check_close(gradients_of(b), gradients_of(a));
    });
  }
}

TEST_CASE("no token counts: the loss and all gradients are zero") {
  Trainer trainer(options_for(), {});
  CHECK(item<double>(trainer.gradients(batch_in_parts({0, 0, 0}, {1, 2}, trainer), 1)) == 0);
  for (const auto& [name, values] : gradients_of(trainer))
    for (double v : values) REQUIRE(v == 0);
}

TEST_CASE("f16: gradients are divided by the loss scale before their norm is taken and clipped") {
  std::vector<double> norms;
  std::vector<Tensor> moves;
  for (double scale : {1.0, 1024.0}) {
    TrainOptions o = options_for(DType::f16);
    o.step.loss_scale = scale;
    o.update.optimizer = "sgd";  // which does not forget how long a gradient is
    o.update.clip = 0.01;
    Trainer trainer(o, {});
    Tensor start = cast(trainer.optimizer().parameters()[0].tensor().detach(), DType::f32);
    norms.push_back(trainer.step(batch_in_parts({6, 6, 6}, {3}, trainer), 1).grad_norm);
    moves.push_back(trainer.optimizer().master(0) - start);
    CHECK(trainer.scaler()->scale() == scale);
  }
  CHECK(norms[0] > 0.1);
  CHECK(norms[1] == doctest::Approx(norms[0]).epsilon(0.01));
  double moved = item<double>(amax(abs(moves[0])));
  CHECK(moved > 1e-6);
  CHECK(moved < 2e-4);  // lr * clip, and decay
  CHECK(item<double>(amax(abs(moves[0] - moves[1]))) < 0.02 * moved);
}

TEST_CASE("a gradient that is not finite on one rank: all leave the step out, and no parameter changes") {
  dist::run_ranks({.ranks = 2}, [](dist::World& world) {
    Trainer trainer(options_for(), place(world, kModel, "tp=2", "tp"));
    Batch batch = batch_in_parts({6, 6, 6}, {3}, trainer);
    auto parameter = trainer.model().parameter("blocks.0.mlp.up.weight");
    bool armed = true;
    parameter.tensor().add_hook([&](const Tensor& gradient) {
      if (armed && world.rank() == 1) poison(gradient);
      return Tensor();
    });
    std::vector<double> before = to_vector<double>(dist::full_tensor(parameter.tensor().detach()));
    StepResult result = trainer.step(batch, 1);
    CHECK(
        result.not_finite ==
        "the norm of the gradients is inf; the first parameter whose gradient is not finite is blocks.0.mlp.up.weight");
    CHECK(std::isfinite(result.loss));
    CHECK(to_vector<double>(dist::full_tensor(parameter.tensor().detach())) == before);
    CHECK(!parameter.grad().defined());
    armed = false;
    CHECK(trainer.step(batch, 2).not_finite.empty());
    CHECK(to_vector<double>(dist::full_tensor(parameter.tensor().detach())) != before);
  });
}

TEST_CASE("a loss that is not finite names the module and the part") {
  TrainOptions o = options_for();
  o.model.tied = false;
  Trainer trainer(o, {});
  Tensor weight = trainer.model().parameter("token.weight").tensor();
  Batch batch = batch_in_parts({6, 6, 6, 6}, {1, 2, 1}, trainer);
  int64_t bad = to_vector<int64_t>(batch.parts[1].ids).front();
  for (const auto* part : {&batch.parts[0]})
    for (int64_t id : to_vector<int64_t>(part->ids)) REQUIRE(id != bad);
  weight.detach().data<double>()[bad * 12] = std::numeric_limits<double>::quiet_NaN();
  StepResult result = trainer.step(batch, 1);
  CHECK(result.not_finite.find("the loss is nan; the first module whose output is not finite is token") == 0);
  CHECK(result.row == 1);
}
