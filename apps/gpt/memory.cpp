#include "gpt/memory.h"

#include <cleave/core/error.h>
#include <cleave/ops/creation.h>

#include <algorithm>

#include <fmt/format.h>

#include "gpt/trainer.h"

namespace gpt {

namespace dist = cleave::dist;

namespace {

// The parts of a batch, in the layout that the trainer takes, without tokens.
Batch empty_batch(const TrainOptions& o, dist::Layout layout) {
  auto tokens = [&](int64_t rows) {
    return cleave::empty({rows, o.model.seq},
                         {.dtype = cleave::DType::i64, .device = cleave::Device::Meta, .layout = layout});
  };
  Batch batch;
  int64_t parts = std::max<int64_t>(1, o.step.accumulate);
  for (int64_t i = 0, row = 0; i < parts; ++i) {
    int64_t rows = o.step.batch / parts + (i < o.step.batch % parts);
    batch.parts.push_back(
        {.ids = tokens(rows), .targets = tokens(rows), .first_row = row, .tokens = rows * o.model.seq});
    row += rows;
    batch.tokens += batch.parts.back().tokens;
  }
  return batch;
}

nn::MemoryPlan two_steps(dist::World& world, const TrainOptions& o) {
  nn::MemoryRecorder memory(cleave::Device::Meta);
  Trainer trainer(o, place(world, o.model, o.mesh, o.plan), cleave::Device::Meta);
  for (int64_t step = 1; step <= 2; ++step) {  // what the optimizer keeps is there from the second on
    memory.step();
    Batch batch = empty_batch(o, trainer.token_layout());
    trainer.gradients(batch, step);
    trainer.gradient_norm();
    trainer.update(step, 2 * o.update.clip + 1);  // as a norm that has to be clipped
  }
  return memory.stop();  // while the trainer has its state
}

}  // namespace

cleave::nn::MemoryPlan planned_memory(const TrainOptions& options, int ranks, int rank) {
  cleave::nn::MemoryPlan plan;
  TrainOptions o = options;
  o.steps = std::max<int64_t>(2, o.steps);
  dist::simulate(ranks, rank, [&](dist::World& world) { plan = two_steps(world, o); });
  return plan;
}

std::string memory_text(const TrainOptions& o) {
  if (o.mesh.empty()) throw cleave::ValueError("gpt plan --memory needs a mesh, for example --mesh dp=2,tp=4");
  int64_t ranks = 1;
  for (const auto& axis : parse_mesh(o.mesh)) ranks *= axis.size;
  if (ranks > (1 << 20))
    throw cleave::ValueError(fmt::format("--mesh {} has {} ranks; at most 2^20 can be simulated", o.mesh, ranks));
  nn::MemoryPlan plan = planned_memory(o, static_cast<int>(ranks));
  return fmt::format(
      "memory of rank 0 of {}, whose blocks are the largest, by a dry run of two steps: {}, batch {}{}, sequence {}, "
      "--mesh {}{}\n\n{}",
      ranks, to_string(o.step.dtype), o.step.batch,
      o.step.accumulate > 1 ? fmt::format(" in {} parts", o.step.accumulate) : "", o.model.seq, o.mesh,
      o.plan.empty() ? "" : " --plan " + o.plan, plan.table());
}

void print_memory_plan(const dist::World& world, const TrainOptions& options) {
  if (world.rank() != 0) return;
  fmt::print("memory of rank 0 as planned: {}\n", planned_memory(options, world.size()).summary());
}

}  // namespace gpt
