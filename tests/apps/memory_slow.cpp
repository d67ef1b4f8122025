// Deferred parameters: a model that is split never exists whole on a rank.
#include <cleave/core/allocator.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/creation.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "gpt/trainer.h"

using namespace gpt;
using namespace cleave;

namespace {

// The largest peak of a rank while a model of 400 MB is built and makes two steps.
int64_t peak(int ranks, const std::string& mesh, const std::string& plan) {
  int64_t largest = 0;
  std::mutex mutex;
  dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
    TrainOptions o{
        .model = completed({.layers = 8, .dim = 1024, .heads = 8, .seq = 16}), .step = {.batch = 2}, .steps = 2};
    Trainer trainer(o, place(world, o.model, mesh, plan));
    CHECK(parameter_count(trainer.model()) * 4 > 400'000'000);
    Tensor tokens = randint(0, 256, {o.step.batch, o.model.seq}, {.seed = 1});
    for (int64_t step = 1; step <= 2; ++step) trainer.step(batch_of(tokens, tokens, trainer.token_layout()), step);
    std::lock_guard lock(mutex);
    largest = std::max(largest, memory_stats().peak);
  });
  return largest;
}

}  // namespace

TEST_CASE("on tp=4 each rank peaks under a third of the unsplit model") {
  int64_t whole = peak(1, "", "");
  for (const char* plan : {"tp", "tp_sp"}) {
    int64_t split = peak(4, "tp=4", plan);
    std::printf("note: peak of a 400 MB model: %.0f MB unsplit, %.0f MB by %s on 4 ranks\n",
                1e-6 * static_cast<double>(whole), 1e-6 * static_cast<double>(split), plan);
    CHECK(split * 3 < whole);
    CHECK(whole < 1'750'000'000);  // weights, gradients, two moments, and little else
  }
}
