// What a run takes from a checkpoint, and what it refuses before anything changes; how often it starts again.
#include "gpt/run_checkpoints.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/host.h>
#include <cleave/ops/reduce.h>

#include <doctest/doctest.h>

#include <csignal>
#include <functional>
#include <limits>
#include <map>

#include "apps/temporary_folder.h"
#include "gpt/data.h"
#include "gpt/restart.h"

using namespace gpt;
using namespace cleave;
using gpt::test::TemporaryFolder;

namespace {

TrainOptions options_for(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * i % 23);
  return {.model = completed({.vocab = 256, .layers = 1, .dim = 12, .heads = 2, .seq = 6}),
          .step = {.batch = 3, .dtype = DType::f64},
          .safety = {.checkpoints = folder.path("run")},
          .steps = 20,
          .data = folder.write("text", text)};
}

struct Run {
  explicit Run(TrainOptions options)
      : o(std::move(options)),
        corpus(open_corpus(o)),
        trainer(o, {}),
        batches(training_loader(corpus, o, {})),
        checkpoints(o) {}
  StepResult step() { return trainer.step(*batches.next(), ++counters.step); }
  void save() { checkpoints.after_step(trainer, batches, counters, true); }
  void resume() { checkpoints.resume(trainer, batches, counters); }

  TrainOptions o;
  Corpus corpus;
  Trainer trainer;
  nn::TokenLoader batches;
  RunCounters counters;
  RunCheckpoints checkpoints;
};

using Values = std::map<std::string, std::vector<double>>;
Values values_of(Trainer& trainer) {
  Values out;
  for (const auto& group : checkpoint_groups(trainer))
    for (const auto& [name, x] : group.tensors) out[group.name + " " + name] = to_vector<double>(x.detach());
  return out;
}

void on_one_rank(const std::function<void()>& f) {
  dist::run_ranks({.ranks = 1}, [&](dist::World&) { f(); });
}

}  // namespace

TEST_CASE("a checkpoint of another run is refused with what differs, and nothing changes") {
  TemporaryFolder folder;
  TrainOptions o = options_for(folder);
  on_one_rank([&] {
    Run run(o);
    run.step();
    run.save();
  });
  o.safety.resume = "auto";
  struct Case {
    const char* says;
    void (*change)(TrainOptions&);
  };
  const Case cases[] = {
      {"is of another model",
       [](TrainOptions& t) { t.model = completed({.vocab = 256, .layers = 2, .dim = 12, .heads = 2, .seq = 6}); }},
      {"was trained with --dtype f64, not f32", [](TrainOptions& t) { t.step.dtype = DType::f32; }},
      {"was trained by --optimizer adamw, not adam", [](TrainOptions& t) { t.update.optimizer = "adam"; }},
      {"has no averaged weights", [](TrainOptions& t) { t.update.ema = 0.9; }},
      {"was trained without a loss scale", [](TrainOptions& t) { t.step.autocast = DType::f16; }},
      {"the seed", [](TrainOptions& t) { t.seed = 7; }}};
  for (const Case& c : cases) {
    CAPTURE(c.says);
    TrainOptions other = o;
    c.change(other);
    on_one_rank([&] {
      Run run(other);
      Values before = values_of(run.trainer);
      CHECK_THROWS_WITH_AS(run.resume(), doctest::Contains(c.says), ValueError);
      CHECK(values_of(run.trainer) == before);
      CHECK(run.counters.step == 0);
    });
  }
}

TEST_CASE("weights, moments, averages, the loss scale, counters and the place in the data come back") {
  TemporaryFolder folder;
  TrainOptions o = options_for(folder);
  o.step.dtype = DType::f16;
  o.update.ema = 0.5;
  Values saved, after;
  nn::LoaderState place;
  on_one_rank([&] {
    Run run(o);
    for (int i = 0; i < 3; ++i) run.step();
    auto scaler = run.trainer.scaler()->state();
    for (auto& [name, x] : scaler) x = x + 5.0;
    run.trainer.scaler()->load_state(scaler);
    run.counters.skipped = 4;
    run.counters.skipped_in_a_row = 2;
    run.save();
    saved = values_of(run.trainer);
    place = run.batches.state();
    run.step();
    after = values_of(run.trainer);
  });
  o.safety.resume = "auto";
  on_one_rank([&] {
    Run run(o);
    run.resume();
    CHECK(values_of(run.trainer) == saved);
    CHECK(run.counters.step == 3);
    CHECK(run.counters.skipped == 4);
    CHECK(run.counters.skipped_in_a_row == 2);
    CHECK(run.batches.state() == place);
    run.step();
    CHECK(values_of(run.trainer) == after);
  });
}

TEST_CASE("a run starts again as often as it may, and not where it would fail again") {
  TemporaryFolder folder;
  auto attempts = [&] { return folder.read("attempts"); };
  auto note = [&](bool resumed) { folder.write("attempts", attempts() + (resumed ? "r" : "f")); };
  // Each attempt leaves something: three of them, the last one's code.
  CHECK(run_with_restarts(2, attempts, [&](bool resumed) {
          note(resumed);
          return 5;
        }) == 5);
  CHECK(attempts() == "frr");
  auto nothing = [] { return std::string(); };
  folder.write("attempts", "");
  CHECK(run_with_restarts(2, nothing, [&](bool resumed) {
          note(resumed);
          return 5;
        }) == 5);
  CHECK(attempts() == "f");
  folder.write("attempts", "");
  CHECK(run_with_restarts(2, nothing, [&](bool resumed) {
          note(resumed);
          if (!resumed) raise(SIGKILL);
          return 0;
        }) == 0);
  CHECK(attempts() == "fr");
}
