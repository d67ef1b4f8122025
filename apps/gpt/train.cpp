#include "gpt/train.h"

#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "gpt/checkpoint.h"
#include "gpt/compare.h"
#include "gpt/curve.h"
#include "gpt/log.h"
#include "gpt/trainer.h"
#include "gpt/watch.h"

namespace gpt {

namespace dist = cleave::dist;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kHeldOutTokens = 128 * 1024;  // about, evenly spread over the text that is held out

std::vector<int64_t> gathered(dist::World& world, int64_t value) {
  std::vector<int64_t> out(static_cast<size_t>(world.size())), counts(out.size(), 1);
  world.communicator().all_gather(&value, out.data(), counts, cleave::DType::i64, cleave::Device::Cpu, "gpt");
  return out;
}

// Ranks of one run read their own command lines and files: they must be the same.
void require_same(dist::World& world, const char* what, uint64_t hash) {
  std::vector<int64_t> all = gathered(world, static_cast<int64_t>(hash));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw cleave::CommError(fmt::format("rank {} has {} than rank 0; start all ranks alike", r, what));
}

uint64_t hash_of(const TrainOptions& o) {
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", to_json(o.model), o.batch, to_string(o.dtype),
                  o.steps, o.lr, o.min_lr.value_or(-1), o.warmup.value_or(-1), o.weight_decay, o.clip, o.seed, o.mesh,
                  o.plan, o.eval_every, o.compare, !o.trace.empty(), o.trace_first, o.trace_last);
  return std::hash<std::string>{}(text);
}

std::string introduction(const dist::World& world, const Corpus& corpus, const Placement& placement, const Gpt& model,
                         const TrainOptions& o) {
  std::string place =
      placement.mesh ? fmt::format("{}, plan {}", to_string(*placement.mesh), placement.name) : "no mesh";
  return fmt::format(
      "model: {:.2f} M parameters, {}\ntext: {} ({} files, {:.1f} MB, the last 5 % held out)\nranks: {} ({}), {}\n",
      static_cast<double>(parameter_count(model)) * 1e-6, to_string(o.dtype), corpus.source, corpus.files,
      static_cast<double>(corpus.train.size() + corpus.held_out.size()) * 1e-6, world.size(), world.backend(), place);
}

// As many windows as make about kHeldOutTokens, or the text, and whole batches.
std::vector<int64_t> held_out_starts(const Corpus& corpus, const TrainOptions& o) {
  auto size = static_cast<int64_t>(corpus.held_out.size());
  int64_t batches = std::min(kHeldOutTokens, size) / (o.batch * o.model.seq);
  return even_starts(size, std::max<int64_t>(1, batches) * o.batch, o.model.seq);
}

class Run {
 public:
  Run(dist::World& world, const TrainOptions& options, const Corpus& corpus, const Placement& placement)
      : world_(world),
        o_(options),
        corpus_(corpus),
        watch_(world, options),
        trainer_(options, placement),
        starts_(held_out_starts(corpus, options)),
        log_(first() ? options.log : ""),
        progress_(options.steps) {
    if (first()) fmt::print("{}", introduction(world, corpus, placement, trainer_.model(), options));
  }

  void steps() {
    for (int64_t step = 1; step <= o_.steps; ++step) {
      dist::check_interrupt();
      StepRecord record = one(step);
      losses_.push_back(record.loss);
      if (!first()) continue;
      log_.write(record);
      progress_.show(record);
    }
  }

  void end() {
    if (!o_.save.empty()) save_model(world_, trainer_.model(), o_.save);
    progress_.finish();
    if (first()) tell();
    watch_.report();
  }

 private:
  bool first() const { return world_.rank() == 0; }

  void tell() const {
    fmt::print("\nloss by step\n{}", draw_curve(losses_));
    fmt::print("held-out loss {:.4f} nats per byte ({:.3f} bits), over {} windows of {} bytes\n", held_out_,
               held_out_ / std::log(2.0), starts_.size(), o_.model.seq);
    if (!o_.save.empty()) fmt::print("saved {}\n", o_.save);
  }

  StepRecord one(int64_t step) {
    Batch batch = random_batch(corpus_.train, o_.batch, o_.model.seq, o_.seed, step);
    dist::reset_comm_counts();
    watch_.begin(step);
    auto start = Clock::now();
    StepRecord r{.step = step};
    r.loss = trainer_.backward(batch, step);
    {
      dist::PhaseScope phase("optimizer");
      r.grad_norm = trainer_.update(step);
    }
    r.lr = trainer_.lr();
    r.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    watch_.end();
    r.tokens_per_s = static_cast<double>(o_.batch * o_.model.seq) / r.ms * 1e3;
    r.comm = dist::comm_counts();
    r.peak_bytes = gathered(world_, cleave::memory_stats().peak);
    if (step == o_.steps || (o_.eval_every > 0 && step % o_.eval_every == 0))
      r.held_out = held_out_ = trainer_.evaluate(corpus_.held_out, starts_);
    return r;
  }

  dist::World& world_;
  const TrainOptions& o_;
  const Corpus& corpus_;
  Watch watch_;
  Trainer trainer_;
  std::vector<int64_t> starts_;
  LogFile log_;
  Progress progress_;
  std::vector<double> losses_;
  double held_out_ = 0;
};

}  // namespace

void train(dist::World& world, const TrainOptions& o) {
  require_same(world, "other options", hash_of(o));
  Placement placement = place(world, o.model, o.mesh, o.plan);
  Corpus corpus = load_corpus(o.data.empty() ? default_data() : o.data, o.model.seq + 1, o.model.vocab);
  require_same(world, "another text", hash_of(corpus));
  if (!o.compare.empty()) return compare_with_single(world, o, placement, corpus);
  if (world.rank() == 0 && !o.save.empty()) require_writable(o.save);
  Run run(world, o, corpus, placement);
  run.steps();
  run.end();
}

}  // namespace gpt
