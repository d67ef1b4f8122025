// A training step of the GPT: forward, backward, clip 1.0, AdamW.
//   bench_step --workload W1 [--dtype f32] [--steps 10] [--threads 1] [--mesh tp=2 --plan tp --ranks 2]
//              [--recompute 1] [--loss-chunk 512] [--accumulate 4]
#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/creation.h>

#include <cstdlib>

#include "gpt/trainer.h"
#include "measure.h"
#include "workload.h"

namespace {

using namespace cleave;

DType dtype_named(const std::string& text) {
  for (DType t : {DType::f32, DType::bf16, DType::f64})
    if (text == to_string(t)) return t;
  throw ValueError("--dtype is f32, bf16 or f64");
}

gpt::TrainOptions train_options(const bench::Options& o) {
  auto sizes = bench::workload("gpt", o.text("workload", "W1"));
  gpt::TrainOptions t;
  t.model.vocab = sizes["vocab"];
  t.model.layers = sizes["layers"];
  t.model.dim = sizes["dim"];
  t.model.heads = sizes["heads"];
  t.model.seq = sizes["seq"];
  t.model = gpt::completed(t.model);
  t.step.batch = sizes["batch"];
  t.step.dtype = dtype_named(o.text("dtype", "f32"));
  t.step.accumulate = o.number("accumulate", 1);
  t.step.loss_chunk = o.number("loss-chunk", 0);
  if (o.number("recompute", 0)) t.step.recompute = {"blocks.*"};
  t.steps = o.number("steps", 10) + 1;
  t.update.lr = 1e-3;
  t.mesh = o.text("mesh");
  t.plan = o.text("plan", t.mesh.empty() ? "single" : "");
  return t;
}

std::string case_of(const bench::Options& o, const dist::World& world) {
  std::string text = o.text("workload", "W1");
  text.append(" ").append(o.text("dtype", "f32"));
  if (world.size() > 1) text.append(" ").append(world.backend()).append(" ").append(o.text("plan", "dp"));
  text.append(" ") += std::to_string(world.size()) + "x" + std::to_string(num_threads());
  for (const char* option : {"recompute", "loss-chunk", "accumulate"})
    if (!o.text(option).empty()) text.append(" ").append(option).append(" ").append(o.text(option));
  return text;
}

gpt::Batch random_tokens(const gpt::TrainOptions& t, const gpt::Trainer& trainer, int64_t step) {
  Shape shape{t.step.batch, t.model.seq};
  auto tokens = [&](uint64_t seed) { return randint(0, t.model.vocab, shape, {.seed = seed}); };
  auto seed = static_cast<uint64_t>(2 * step);
  return gpt::batch_of(tokens(seed), tokens(seed + 1), trainer.token_layout());
}

// The start of the process, if who started it said when that was.
void report_start(const std::string& name) {
  if (const char* start = std::getenv("BENCH_START"))
    bench::report("start.first_step", name, bench::now() - std::stod(start), "s");
}

void run(dist::World& world, const bench::Options& o, int64_t bare) {
  dist::set_checked_mode(false);
  if (o.number("threads", 0)) set_num_threads(o.number("threads", 0));
  gpt::TrainOptions t = train_options(o);
  std::string name = case_of(o, world);
  bool speaks = world.rank() == 0;
  gpt::Trainer trainer(t, gpt::place(world, t.model, t.mesh, t.plan));

  std::vector<double> times;
  int64_t allocations = 0;
  for (int64_t step = 1; step <= t.steps; ++step) {
    gpt::Batch batch = random_tokens(t, trainer, step);
    double start = bench::now();
    trainer.step(batch, step);
    times.push_back(bench::now() - start);
    if (step == 1 && speaks) report_start(name);
    if (step == 2) allocations = memory_stats().system_allocations;
  }
  if (!speaks) return;
  times.erase(times.begin());
  std::sort(times.begin(), times.end());
  auto count = static_cast<double>(t.step.batch * t.model.seq);
  bench::report("step", name, times.front() * 1e3, "ms");
  bench::report("step.median", name, times[times.size() / 2] * 1e3, "ms");
  bench::report("step.token", name, times.front() / count * 1e6, "us");
  bench::report("step.allocator_peak", name, static_cast<double>(memory_stats().peak) * 1e-6, "MB");
  bench::report("step.peak", name, static_cast<double>(bench::process_bytes("VmHWM") - bare) * 1e-6, "MB");
  bench::report("step.allocations", name, static_cast<double>(memory_stats().system_allocations - allocations), "");
}

}  // namespace

int main(int argc, char** argv) {
  int64_t bare = bench::process_bytes("VmHWM");
  return dist::launch(argc, argv, [&](dist::World& world) { run(world, bench::Options(world.arguments()), bare); });
}
