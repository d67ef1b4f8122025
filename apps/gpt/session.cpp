#include "gpt/session.h"

#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/last_collective.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "gpt/checkpoint.h"
#include "gpt/curve.h"
#include "gpt/error_place.h"
#include "gpt/memory.h"

namespace gpt {

namespace dist = cleave::dist;
using Clock = std::chrono::steady_clock;

std::vector<int64_t> gathered(dist::World& world, int64_t value) {
  std::vector<int64_t> out(static_cast<size_t>(world.size())), counts(out.size(), 1);
  world.communicator().all_gather(&value, out.data(), counts, cleave::DType::i64, cleave::Device::Cpu, "gpt");
  return out;
}

Session::Session(dist::World& world, const TrainOptions& options, const Corpus& corpus, const Placement& placement)
    : world_(world),
      o_(options),
      corpus_(corpus),
      watch_(world, options),
      trainer_(options, placement),
      batches_(training_loader(corpus, options, trainer_.token_layout())),
      checkpoints_(options),
      progress_(options.steps) {
  if (first()) introduce(placement);
  checkpoints_.resume(trainer_, batches_, counters_);
  log_.emplace(first() ? options.watch.log : "", counters_.step);
  print_memory_plan(world, options);
}

int64_t Session::last_step() const { return o_.safety.stop_at > 0 ? std::min(o_.safety.stop_at, o_.steps) : o_.steps; }

void Session::introduce(const Placement& placement) const {
  std::string place =
      placement.mesh ? fmt::format("{}, plan {}", to_string(*placement.mesh), placement.name) : "no mesh";
  const char* what = corpus_.train.is_text() ? "bytes" : "tokens";
  fmt::print("model: {:.2f} M parameters, {}\ndata: {} ({} files, {:.2f} M {}, the last 5 % held out)\n",
             static_cast<double>(parameter_count(trainer_.model())) * 1e-6, to_string(o_.step.dtype),
             corpus_.train.source(), corpus_.train.files(),
             static_cast<double>(corpus_.train.size() + corpus_.held_out.size()) * 1e-6, what);
  fmt::print("ranks: {} ({}), {}\n", world_.size(), world_.backend(), place);
}

void Session::steps() {
  for (int64_t step = counters_.step + 1; step <= last_step(); ++step) try {
      take(step);
    } catch (...) { rethrow_with_place(place(step)); }
}

void Session::take(int64_t step) {
  doing_ = "begin";
  dist::check_interrupt();
  StepRecord record = one(step);
  doing_ = "log";  // an evaluation may have come between
  losses_.push_back(record.loss);
  counters_.step = step;
  if (first()) {
    log_->write(record);
    progress_.show(record);
  }
  doing_ = "checkpoint";
  watch_.begin(step, "behind ", checkpoints_.saving());  // what a checkpoint takes is seen too
  checkpoints_.after_step(trainer_, batches_, counters_, step == last_step());
  watch_.end();
  watch_.over(step, checkpoints_.saving());
}

// "step 7, backward, in all_reduce 'gradients' over dp".
std::string Session::place(int64_t step) const {
  const char* doing = doing_ ? doing_ : trainer_.doing();
  std::string at = fmt::format("step {}{}{}", step, *doing ? ", " : "", doing);
  try {
    throw;
  } catch (const cleave::PeerError&) { return at + ", in " + dist::last_collective(); } catch (...) {
    return at;
  }
}

StepRecord Session::one(int64_t step) {
  dist::reset_comm_counts();
  watch_.begin(step);
  auto start = Clock::now();
  doing_ = "data";
  Batch batch = *batches_.next();
  doing_ = nullptr;
  StepResult result = trainer_.step(batch, step);
  doing_ = "";
  judge(batch, result, step);
  doing_ = "log";
  StepRecord r{.step = step, .loss = result.loss, .grad_norm = result.grad_norm, .lr = trainer_.lr(step)};
  r.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  watch_.end();
  r.tokens_per_s = static_cast<double>(batch.tokens) / r.ms * 1e3;
  r.comm = dist::comm_counts();
  r.skipped = result.overflow || !result.not_finite.empty();
  if (trainer_.scaler()) r.loss_scale = trainer_.scaler()->scale();
  r.peak_bytes = gathered(world_, cleave::memory_stats().peak);
  int64_t every = o_.watch.eval_every;
  if (step == last_step() || (every > 0 && step % every == 0)) {
    doing_ = "evaluation";
    r.held_out = held_out_ = evaluate();
  }
  return r;
}

// Counts a step that was left out; an error where that is too much.
void Session::judge(const Batch& batch, const StepResult& result, int64_t step) {
  if (result.overflow) ++counters_.skipped;
  if (result.not_finite.empty()) {
    counters_.skipped_in_a_row = 0;
    return;
  }
  std::string what = fmt::format("{}; the batch begins at {}", result.not_finite, batches_.origin(batch, result.row));
  if (o_.safety.not_finite == "stop") throw cleave::ValueError(what);
  ++counters_.skipped;
  if (++counters_.skipped_in_a_row >= o_.safety.max_skips)
    throw cleave::ValueError(fmt::format("{}; {} steps in a row were left out", what, counters_.skipped_in_a_row));
  if (first()) {
    progress_.finish();
    fmt::print("step {} is left out: {}\n", step, what);
  }
}

double Session::evaluate() {
  nn::TokenLoader loader = held_out_loader(corpus_, o_, trainer_.token_layout());
  double total = 0;
  int64_t tokens = 0;
  while (auto batch = loader.next()) {
    total += trainer_.evaluate(*batch);
    tokens += batch->tokens;
  }
  held_out_windows_ = loader.epoch_samples();
  return total / static_cast<double>(tokens);
}

void Session::end() {
  if (!o_.save.empty()) save();
  progress_.finish();
  if (first()) tell();
  watch_.report();
}

// The averaged weights, if there are any.
void Session::save() {
  std::optional<cleave::optim::EMA::Scope> averaged;
  if (trainer_.ema()) averaged.emplace(*trainer_.ema());
  save_model(trainer_.model(), o_.save, o_.safety.max_file_bytes);
}

void Session::tell() const {
  if (counters_.step < o_.steps) {
    fmt::print("stopped behind step {}; go on with --resume auto\n", counters_.step);
    return;
  }
  if (losses_.empty()) {
    fmt::print("all {} steps were done before\n", o_.steps);
  } else {
    const char* unit = corpus_.train.is_text() ? "byte" : "token";
    fmt::print("\nloss by step\n{}", draw_curve(losses_));
    fmt::print("held-out loss {:.4f} nats per {} ({:.3f} bits), over {} windows of {} {}s\n", held_out_, unit,
               held_out_ / std::log(2.0), held_out_windows_, o_.model.seq, unit);
  }
  if (counters_.skipped) fmt::print("{} steps were left out, because a number was not finite\n", counters_.skipped);
  if (!o_.save.empty()) fmt::print("saved {}\n", o_.save);
}

}  // namespace gpt
