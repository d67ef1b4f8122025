// The options of gpt train.
#include <cleave/core/error.h>

#include <fmt/format.h>

#include "gpt/options_groups.h"

namespace gpt {

namespace {

void add_safety(CLI::App& app, SafetyOptions& o) {
  const std::string group = "Safety";
  app.add_option("--checkpoints", o.checkpoints, "folder to keep checkpoints in")->group(group);
  app.add_option("--checkpoint-every", o.every, "steps between checkpoints [0: at the end]")->group(group);
  app.add_option("--keep", o.keep, "newest checkpoints to keep; 0: all")->capture_default_str()->group(group);
  app.add_option("--max-file-bytes", o.max_file_bytes, "of tensors in one file of a checkpoint or --save FOLDER/")
      ->capture_default_str()
      ->group(group);
  app.add_option("--stop-at", o.stop_at, "end behind this step, with a checkpoint to go on from [0: the last]")
      ->group(group);
  app.add_flag("--background,!--no-background", o.background, "write checkpoints while training goes on [on]")
      ->group(group);
  app.add_option("--resume", o.resume,
                 "go on from a checkpoint, or the newest of a folder of them; auto: the newest complete one of "
                 "--checkpoints, if there is one")
      ->group(group);
  app.add_option("--restarts", o.restarts,
                 "start again this often, from the newest checkpoint, if the run fails (thread ranks; under MPI: "
                 "scripts/mpirun --restarts)")
      ->group(group);
  app.add_option("--on-not-finite", o.not_finite,
                 "if the loss or a gradient is nan or inf: stop, or skip the step and count it [stop]")
      ->check(CLI::IsMember({"stop", "skip"}).description(""))
      ->group(group);
  app.add_option("--max-skips", o.max_skips, "steps in a row to skip before stopping")
      ->capture_default_str()
      ->group(group);
}

// "A:B", or "A" for one step.
void read_steps(const std::string& text, WatchOptions& o) {
  size_t colon = text.find(':');
  std::string first = text.substr(0, colon), last = colon == std::string::npos ? first : text.substr(colon + 1);
  if (!CLI::detail::lexical_cast(first, o.trace_first) || !CLI::detail::lexical_cast(last, o.trace_last))
    throw cleave::ValueError(fmt::format("--trace-steps is {}; it must be two step numbers, like 3:5", text));
}

void add_watch(CLI::App& app, WatchOptions& o) {
  const std::string group = "Seeing";
  app.add_option("--eval-every", o.eval_every, "steps between held-out losses [at the end]")->group(group);
  app.add_option("--log", o.log, "write a line of JSON per step to this file; see gpt report")->group(group);
  app.add_option("--trace", o.trace,
                 "write ops, collectives, modules and memory of some steps of all ranks to this file, for "
                 "chrome://tracing or ui.perfetto.dev")
      ->group(group);
  app.add_option_function<std::string>(
         "--trace-steps", [&o](const std::string& text) { read_steps(text, o); }, "first and last of these steps [3:5]")
      ->group(group);
  app.add_flag("--profile", o.profile, "print where the time of rank 0 went, from step 3 on, as a table by op")
      ->group(group);
}

void check(const SafetyOptions& o) {
  require(o.every >= 0, "--checkpoint-every", static_cast<double>(o.every), "at least 0");
  require(o.keep >= 0, "--keep", static_cast<double>(o.keep), "at least 0");
  require(o.max_file_bytes >= 1, "--max-file-bytes", static_cast<double>(o.max_file_bytes), "at least 1");
  require(o.stop_at >= 0, "--stop-at", static_cast<double>(o.stop_at), "at least 0");
  require(o.restarts >= 0, "--restarts", static_cast<double>(o.restarts), "at least 0");
  require(o.max_skips >= 1, "--max-skips", static_cast<double>(o.max_skips), "at least 1");
  if (o.checkpoints.empty() && (o.every > 0 || o.stop_at > 0 || o.resume == "auto" || o.restarts > 0))
    throw cleave::ValueError(
        "--checkpoint-every, --stop-at, --resume auto and --restarts need a folder: --checkpoints DIR");
}

void check(const TrainOptions& o, const WatchOptions& w) {
  require(w.eval_every >= 0, "--eval-every", static_cast<double>(w.eval_every), "at least 0");
  if (!w.trace_last) return;
  if (w.trace.empty()) throw cleave::ValueError("--trace-steps needs --trace");
  require(w.trace_first >= 1 && w.trace_first <= o.steps, "the first of --trace-steps",
          static_cast<double>(w.trace_first), "from 1 to --steps");
  require(w.trace_last >= w.trace_first, "the last of --trace-steps", static_cast<double>(w.trace_last),
          "at least the first");
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& o) {
  add_model_options(app, o.model);
  add_step_options(app, o.step);
  add_update_options(app, o.update);
  add_safety(app, o.safety);
  add_watch(app, o.watch);
  app.add_option("--steps", o.steps, "")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights, batches and dropout")->capture_default_str();
  app.add_option("--data", o.data, "file or folder of text or of tokens [the C++ headers of this machine]");
  app.add_flag("--check-data", o.check_data, "read all of it before the first step, for damage and foreign tokens");
  app.add_option("--save", o.save, "write the model to this safetensors file, or (with a / at the end) folder");
  add_placement_options(app, o.mesh, o.plan);
  app.add_option("--ranks", "thread ranks; under mpirun its processes are the ranks [1]")->group("Placement");
  app.add_option("--overlap", "communicate while computing: on, off or auto; alone: on [off]")
      ->expected(0, 1)
      ->check(CLI::IsMember({"on", "off", "auto"}).description(""))
      ->group("Placement");
  app.add_flag("--deferred,!--no-deferred", o.deferred, "make only the weights that a rank holds [on]")
      ->group("Placement");
  app.add_option("--compare", o.compare, "single: also train on one device, and compare every step")
      ->check(CLI::IsMember({"single"}).description(""));
}

TrainOptions checked(TrainOptions o) {
  o.model = completed(o.model);
  require(o.steps >= 1, "--steps", static_cast<double>(o.steps), "at least 1");
  check(o.step);
  check(o.update);
  check(o.safety);
  check(o, o.watch);
  if (o.compare.empty()) return o;
  if (o.watch.profile || !o.watch.trace.empty())
    throw cleave::ValueError("--trace and --profile watch one run; leave --compare away");
  if (!o.safety.checkpoints.empty() || !o.safety.resume.empty())
    throw cleave::ValueError("--compare keeps no checkpoints; leave --checkpoints and --resume away");
  return o;
}

}  // namespace gpt
