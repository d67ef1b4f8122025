#include "gpt/run_checkpoints.h"

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "gpt/checkpoint.h"

namespace gpt {

using cleave::FileError;
using cleave::ValueError;
namespace fs = std::filesystem;

namespace {

bool first() { return cleave::dist::World::current()->rank() == 0; }

// A folder of checkpoints, and none itself. As rank 0 sees it: all ranks go the same way.
bool is_series(const std::string& folder) {
  std::error_code none;
  int64_t series = fs::exists(folder + "/latest", none) && !fs::exists(folder + "/manifest.json", none);
  cleave::dist::World::current()->communicator().broadcast(&series, 1, cleave::DType::i64, 0, cleave::Device::Cpu,
                                                           "gpt");
  return series != 0;
}

nn::CheckpointContent content_of(Trainer& trainer, const nn::TokenLoader& batches, const RunCounters& counters,
                                 const TrainOptions& o) {
  nn::CheckpointContent content{.groups = checkpoint_groups(trainer)};
  content.values = {{"step", counters.step},
                    {"skipped", counters.skipped},
                    {"skipped_in_a_row", counters.skipped_in_a_row},
                    {"batches", to_string(batches.state())},
                    {"batch", batches.options().batch},
                    {"optimizer", o.update.optimizer}};
  return content;
}

void require_fit(const nn::Checkpoint& file, Trainer& trainer, const TrainOptions& o) {
  Config saved = config_of(file);
  saved.tokenizer = o.model.tokenizer;  // it may have been moved
  if (!(saved == o.model))
    throw ValueError(fmt::format("--resume: {} is of another model, {}; this one is {}", file.path(), to_json(saved),
                                 to_json(o.model)));
  cleave::DType dtype = file.tensors("model").front().second.dtype;
  if (dtype != o.step.dtype)
    throw ValueError(fmt::format("--resume: {} was trained with --dtype {}, not {}", file.path(), to_string(dtype),
                                 to_string(o.step.dtype)));
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

std::vector<nn::CheckpointGroup> checkpoint_groups(Trainer& trainer) {
  std::vector<nn::CheckpointGroup> out{model_group(trainer.model()), {"optimizer", trainer.optimizer().state()}};
  if (const auto* ema = trainer.ema()) out.push_back({"ema", ema->state()});
  if (const auto* scaler = trainer.scaler()) out.push_back({"scaler", scaler->state()});
  return out;
}

RunCheckpoints::RunCheckpoints(const TrainOptions& options) : o_(options) {
  if (o_.safety.checkpoints.empty()) return;
  series_.emplace(o_.safety.checkpoints, nn::SeriesOptions{.keep = static_cast<int>(o_.safety.keep),
                                                           .save = {.max_file_bytes = o_.safety.max_file_bytes}});
  if (!o_.safety.resume.empty()) return;
  nn::FoundCheckpoint other = nn::find_latest(o_.safety.checkpoints);
  if (!other.folder.empty() || !other.skipped.empty())
    throw ValueError(
        fmt::format("--checkpoints: {} has checkpoints already; go on from them with --resume auto, or "
                    "choose another folder",
                    o_.safety.checkpoints));
}

// "": there is nothing to go on from.
std::string RunCheckpoints::found() const {
  bool automatic = o_.safety.resume == "auto";
  const std::string& folder = automatic ? o_.safety.checkpoints : o_.safety.resume;
  if (!automatic && !is_series(folder)) return folder;
  nn::FoundCheckpoint found = nn::find_latest(folder, true);
  if (first())
    for (const std::string& why : found.skipped) fmt::print("passed by {}\n", why);
  if (found.folder.empty() && !found.skipped.empty())
    throw FileError(
        fmt::format("--resume: no checkpoint in {} can be loaded; the newest: {}", folder, found.skipped.front()));
  return found.folder;
}

void RunCheckpoints::resume(Trainer& trainer, nn::TokenLoader& batches, RunCounters& counters) {
  std::string folder = o_.safety.resume.empty() ? "" : found();
  if (folder.empty()) return;
  nn::Checkpoint file(folder);
  require_fit(file, trainer, o_);
  nn::LoaderState position = nn::read_loader_state(file.text("batches"));
  auto layouts = cleave::optim::state_layouts(trainer.model().parameters());
  nn::NamedTensors state = file.read("optimizer", layouts), averages, scaler;
  if (trainer.ema()) averages = file.read("ema", layouts);
  if (trainer.scaler()) scaler = file.read("scaler", [](const auto&, const auto&) { return cleave::dist::Layout(); });
  int64_t batch = batches.options().batch;
  int64_t batch_before = file.values().contains("batch") ? file.integer("batch") : batch;  // some do not say
  RunCounters read{file.integer("step"), file.integer("skipped"), file.integer("skipped_in_a_row")};
  batches.restore(position);  // refuses what does not fit before anything else changes
  file.load(trainer.model());
  trainer.optimizer().load_state(state);
  if (trainer.ema()) trainer.ema()->load_state(averages);
  if (trainer.scaler()) trainer.scaler()->load_state(scaler);
  counters = read;
  std::vector<std::string> left;
  if (series_) left = series_->abandon_after(counters.step);
  if (!first()) return;
  fmt::print("goes on behind step {}: {}\n", counters.step, folder);
  if (batch != batch_before) fmt::print("a step has {} windows from here on, {} before\n", batch, batch_before);
  for (const std::string& name : left) fmt::print("{} is of another course: now {}.abandoned\n", name, name);
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
