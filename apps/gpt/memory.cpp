#include "gpt/memory.h"

#include <cleave/core/error.h>
#include <cleave/core/text.h>
#include <cleave/nn/observer.h>
#include <cleave/ops/creation.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "gpt/fit.h"
#include "gpt/run_checkpoints.h"
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

struct DryRun {
  nn::MemoryPlan plan;
  std::vector<int64_t> copied;  // for a checkpoint, by rank
};

// What RunCheckpoints::resume does: the state of optimizer and averages is read whole, and put in its place. The
// optimizer's has none yet then: as much as there is here.
void read_state(Trainer& trainer) {
  nn::FileSpan span("load", 0);
  auto read = [](nn::NamedTensors state) {
    for (auto& [name, x] : state)
      if (x.device() == cleave::Device::Meta)
        x = cleave::empty(x.shape(), {.dtype = x.dtype(),
                                      .device = cleave::Device::Meta,
                                      .layout = x.is_distributed() ? x.layout() : dist::Layout()});
    return state;
  };
  nn::NamedTensors optimizer = read(trainer.optimizer().state());
  if (trainer.ema()) trainer.ema()->load_state(read(trainer.ema()->state()));
}

DryRun dry_run(dist::World& world, const TrainOptions& o, const MemoryCase& c) {
  DryRun out;
  nn::MemoryRecorder memory(cleave::Device::Meta);
  Trainer trainer(o, place(world, o.model, o.mesh, o.plan), cleave::Device::Meta);
  auto step = [&](int64_t number) {
    memory.step();
    Batch batch = empty_batch(o, trainer.token_layout());
    trainer.gradients(batch, number);
    trainer.gradient_norm();
    trainer.update(number, 2 * o.update.clip + 1);  // as a norm that has to be clipped
  };
  step(1);
  step(2);  // with what the optimizer keeps
  trainer.evaluate(empty_batch(o, trainer.token_layout()));
  nn::CheckpointCopies copies;
  if (c.resumed) read_state(trainer);
  if (c.saving != Saving::none) copies = nn::checkpoint_copies(checkpoint_groups(trainer), c.saving != Saving::waited);
  if (c.saving == Saving::behind) step(3);
  out.plan = memory.stop();  // while the trainer has its state
  out.copied = std::move(copies.bytes);
  return out;
}

DryRun dry_run(const TrainOptions& options, int ranks, int rank, const MemoryCase& c) {
  DryRun out;
  TrainOptions o = options;
  o.steps = std::max<int64_t>(3, o.steps);
  dist::simulate(
      ranks, rank, [&](dist::World& world) { out = dry_run(world, o, c); },
      c.overlap ? dist::Overlap::on : dist::Overlap::off);
  return out;
}

int ranks_of(const std::string& mesh) {
  int64_t ranks = 1;
  for (const auto& axis : parse_mesh(mesh)) ranks *= axis.size;
  if (ranks > (1 << 20))
    throw cleave::ValueError(fmt::format("--mesh {} has {} ranks; at most 2^20 can be simulated", mesh, ranks));
  return static_cast<int>(ranks);
}

}  // namespace

MemoryCase memory_case(const TrainOptions& o, bool overlap) {
  bool again = o.safety.every > 0 && o.safety.every < o.steps;  // steps are made while a checkpoint is written
  Saving saving = o.safety.checkpoints.empty() ? Saving::none
                  : !o.safety.background       ? Saving::waited
                  : again                      ? Saving::behind
                                               : Saving::copied;
  return {.overlap = overlap, .saving = saving, .resumed = !o.safety.resume.empty()};
}

cleave::nn::MemoryPlan planned_memory(const TrainOptions& options, int ranks, int rank, const MemoryCase& c) {
  return dry_run(options, ranks, rank, c).plan;
}

MemoryRange planned_range(const TrainOptions& options, int ranks, const MemoryCase& c) {
  DryRun first = dry_run(options, ranks, 0, c);
  MemoryRange out{.most = first.plan, .rank = 0, .least = first.plan.peak, .ranks = ranks};
  std::set<int> others{ranks - 1};
  if (!first.copied.empty()) {
    auto [low, high] = std::minmax_element(first.copied.begin(), first.copied.end());
    others.insert(static_cast<int>(high - first.copied.begin()));
    others.insert(static_cast<int>(low - first.copied.begin()));
  }
  others.erase(0);
  for (int rank : others) {
    nn::MemoryPlan plan = dry_run(options, ranks, rank, c).plan;
    out.least = std::min(out.least, plan.peak);
    if (plan.peak <= out.most.peak) continue;
    out.most = std::move(plan);
    out.rank = rank;
  }
  return out;
}

std::string MemoryRange::text() const {
  std::string low = cleave::bytes_text(least), high = cleave::bytes_text(most.peak);
  if (ranks == 1) return "";
  return low == high ? fmt::format("; each of {} ranks peaks at {}", ranks, high)
                     : fmt::format("; the peaks of {} ranks are {} to {}", ranks, low, high);
}

std::string memory_text(const TrainOptions& o, const MemoryCase& c, int64_t limit) {
  int ranks = o.mesh.empty() ? 1 : ranks_of(o.mesh);
  MemoryRange range = planned_range(o, ranks, c);
  std::string out =
      fmt::format("memory of rank {} of {}, by a dry run of training: {}, {}, batch {}{}, sequence {}{}{}{}{}\n\n{}{}",
                  range.rank, ranks, to_string(o.step.dtype), o.update.optimizer, o.step.batch,
                  o.step.accumulate > 1 ? fmt::format(" in {} parts", o.step.accumulate) : "", o.model.seq,
                  o.mesh.empty() ? "" : ", --mesh " + o.mesh, o.plan.empty() ? "" : " --plan " + o.plan,
                  c.overlap ? ", communicating while computing" : "",
                  c.saving != Saving::none ? ", a checkpoint being written" : "", range.most.table(),
                  range.text().substr(range.ranks > 1 ? 2 : 0));
  if (range.ranks > 1) out += "\n";
  return limit > 0 ? out + fit_text(o, ranks, c, range.most.peak, limit) : out;
}

void print_memory_plan(const dist::World& world, const TrainOptions& options) {
  if (world.rank() != 0) return;
  MemoryRange range = planned_range(options, world.size(), memory_case(options, world.overlaps()));
  fmt::print("memory of rank {} as planned: {}{}\n", range.rank, range.most.summary(), range.text());
}

}  // namespace gpt
