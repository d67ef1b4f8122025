#include "gpt/run_checkpoints.h"

#include <cleave/core/error.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "gpt/checkpoint.h"

namespace gpt {

using cleave::ValueError;

namespace {

bool first() { return cleave::dist::World::current()->rank() == 0; }

nn::CheckpointContent content_of(Trainer& trainer, const nn::TokenLoader& batches, const RunCounters& counters,
                                 const TrainOptions& o) {
  nn::CheckpointContent content;
  content.groups.push_back(model_group(trainer.model()));
  content.groups.push_back({"optimizer", trainer.optimizer().state()});
  if (const auto* ema = trainer.ema()) content.groups.push_back({"ema", ema->state()});
  if (const auto* scaler = trainer.scaler()) content.groups.push_back({"scaler", scaler->state()});
  content.values = {{"step", counters.step},
                    {"skipped", counters.skipped},
                    {"skipped_in_a_row", counters.skipped_in_a_row},
                    {"batches", to_string(batches.state())},
                    {"optimizer", o.update.optimizer}};
  return content;
}

void require_fit(const nn::Checkpoint& file, Trainer& trainer, const TrainOptions& o) {
  Config saved = config_of(file);
  saved.tokenizer = o.model.tokenizer;  // it may have been moved
  if (!(saved == o.model))
    throw ValueError(fmt::format("--resume: {} is of another model, {}; this one is {}", file.path(), to_json(saved),
                                 to_json(o.model)));
  if (const std::string& name = file.text("optimizer"); name != o.update.optimizer)
    throw ValueError(
        fmt::format("--resume: {} was trained by --optimizer {}, not {}", file.path(), name, o.update.optimizer));
  if (trainer.ema() && !file.has_group("ema"))
    throw ValueError(fmt::format("--resume: {} has no averaged weights; leave --ema away", file.path()));
  if (trainer.scaler() && !file.has_group("scaler"))
    throw ValueError(fmt::format("--resume: {} was trained without a loss scale; keep its --dtype", file.path()));
}

}  // namespace

std::string newest_checkpoint(const std::string& folder) {
  std::ifstream in(std::filesystem::path(folder) / "latest");
  return {std::istreambuf_iterator<char>(in), {}};
}

RunCheckpoints::RunCheckpoints(const TrainOptions& options) : o_(options) {
  if (!o_.safety.checkpoints.empty())
    series_.emplace(o_.safety.checkpoints, nn::SeriesOptions{.keep = static_cast<int>(o_.safety.keep)});
}

void RunCheckpoints::resume(Trainer& trainer, nn::TokenLoader& batches, RunCounters& counters) const {
  std::string folder = o_.safety.resume;
  if (folder.empty()) return;
  if (folder == "auto") {
    nn::FoundCheckpoint found = nn::find_latest(o_.safety.checkpoints);
    if (first())
      for (const std::string& why : found.skipped) fmt::print("passed by {}\n", why);
    if (found.folder.empty()) return;
    folder = found.folder;
  }
  nn::Checkpoint file(folder);
  require_fit(file, trainer, o_);
  nn::LoaderState position = nn::read_loader_state(file.text("batches"));
  auto layouts = cleave::optim::state_layouts(trainer.model().parameters());
  nn::NamedTensors state = file.read("optimizer", layouts), averages, scaler;
  if (trainer.ema()) averages = file.read("ema", layouts);
  if (trainer.scaler()) scaler = file.read("scaler", [](const auto&, const auto&) { return cleave::dist::Layout(); });
  RunCounters read{file.integer("step"), file.integer("skipped"), file.integer("skipped_in_a_row")};
  batches.restore(position);  // refuses what does not fit before anything else changes
  file.load(trainer.model());
  trainer.optimizer().load_state(state);
  if (trainer.ema()) trainer.ema()->load_state(averages);
  if (trainer.scaler()) trainer.scaler()->load_state(scaler);
  counters = read;
  if (first()) fmt::print("goes on behind step {}: {}\n", counters.step, folder);
}

void RunCheckpoints::after_step(Trainer& trainer, const nn::TokenLoader& batches, const RunCounters& counters,
                                bool last) {
  if (!series_) return;
  bool due = last || (o_.safety.every > 0 && counters.step % o_.safety.every == 0);
  if (!due) {
    series_->poll();
    return;
  }
  nn::CheckpointContent content = content_of(trainer, batches, counters, o_);
  if (o_.safety.background)
    series_->save_async(counters.step, content);
  else
    series_->save(counters.step, content);
  if (last) series_->wait();
}

}  // namespace gpt
