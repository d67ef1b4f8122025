// The memory plan beside what the allocator of a real run counts.
#include "gpt/memory.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/ops/creation.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "apps/temporary_folder.h"
#include "gpt/trainer.h"

using namespace gpt;
using gpt::test::TemporaryFolder;
using namespace cleave;

namespace {

TrainOptions options_for(DType dtype, double dropout) {
  return {.model = completed({.vocab = 256, .layers = 2, .dim = 64, .heads = 4, .seq = 64, .dropout = dropout}),
          .step = {.batch = 8, .dtype = dtype},
          .steps = 3};
}

Batch real_batch(const TrainOptions& o, dist::Layout layout) {
  Batch batch;
  int64_t parts = o.step.accumulate, rows = o.step.batch / parts;
  for (int64_t i = 0; i < parts; ++i) {
    Tensor tokens = randint(0, 256, {rows, o.model.seq}, {.seed = static_cast<uint64_t>(1 + i), .layout = layout});
    Tensor targets = randint(0, 256, {rows, o.model.seq}, {.seed = static_cast<uint64_t>(7 + i), .layout = layout});
    batch.parts.push_back({.ids = tokens, .targets = targets, .first_row = i * rows, .tokens = rows * o.model.seq});
    batch.tokens += rows * o.model.seq;
  }
  return batch;
}

// The allocator's peak on each rank after three real steps.
std::vector<int64_t> peaks(const TrainOptions& o, int ranks) {
  std::vector<int64_t> out(static_cast<size_t>(ranks));
  dist::run_ranks({.ranks = ranks, .checked = 0}, [&](dist::World& world) {
    Trainer trainer(o, place(world, o.model, o.mesh, o.plan));
    for (int64_t step = 1; step <= 3; ++step) trainer.step(real_batch(o, trainer.token_layout()), step);
    out[static_cast<size_t>(world.rank())] = memory_stats().peak;
  });
  return out;
}

void check(const TrainOptions& o, int ranks) {
  std::vector<int64_t> real = peaks(o, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    auto planned = static_cast<double>(planned_memory(o, ranks, rank).peak);
    auto counted = static_cast<double>(real[static_cast<size_t>(rank)]);
    if (std::getenv("CLEAVE_SHOW_MEMORY"))
      std::printf("%-8s %-10s %-5s drop %g rank %d: planned %.0f counted %.0f (%+.3f %%)\n", o.plan.c_str(),
                  o.mesh.c_str(), std::string(to_string(o.step.dtype)).c_str(), o.model.dropout, rank, planned, counted,
                  100 * (planned / counted - 1));
    CAPTURE(o.plan);
    CAPTURE(o.mesh);
    CAPTURE(to_string(o.step.dtype));
    CAPTURE(o.model.dropout);
    CAPTURE(rank);
    CHECK(std::abs(planned / counted - 1) <= 0.01);
  }
}

}  // namespace

TEST_CASE("the planned peak is the allocator's within 1 percent") {
  TemporaryFolder folder;
  std::string stored =
      folder.write("stored.toml", "[parameter]\n\"**.weight\" = \"dp, ... => ...\"\n[forward]\ninput = [\"dp, -\"]\n");
  struct Place {
    int ranks;
    std::string mesh, plan;
  };
  const Place places[] = {{1, "", ""},          {2, "tp=2", "tp"},   {2, "dp=2", "dp"},
                          {2, "tp=2", "tp_sp"}, {2, "dp=2", stored}, {4, "dp=2,tp=2", "dp_tp_sp"},
                          {4, "tp=4", "tp"},    {4, "dp=4", stored}};
  for (const Place& p : places)
    for (DType dtype : {DType::f32, DType::bf16})
      for (double dropout : {0.0, 0.1}) {
        TrainOptions o = options_for(dtype, dropout);
        o.mesh = p.mesh;
        o.plan = p.plan;
        check(o, p.ranks);
      }
}

TEST_CASE("the plan knows micro-batches, recomputation and the loss in chunks") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    TrainOptions o = options_for(dtype, 0.1);
    o.mesh = "tp=2";
    o.plan = "tp_sp";
    o.step.accumulate = 2;
    check(o, 2);
    o.step.recompute = {"blocks.*"};
    check(o, 2);
    o.step.loss_chunk = 64;
    check(o, 2);
  }
}
