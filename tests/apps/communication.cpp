// What the ready plans communicate in a step, collective by collective.
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/nn/shard.h>
#include <cleave/ops/creation.h>

#include <doctest/doctest.h>

#include <map>

#include "gpt/model.h"
#include "gpt/plans.h"
#include "gpt/trainer.h"

using namespace gpt;
using namespace cleave;
using dist::CollectiveKind;
using dist::CommEvent;

namespace {

constexpr int64_t kBatch = 4, kSeq = 32, kDim = 96, kLayers = 3;
const Config kConfig = completed({.layers = kLayers, .dim = kDim, .heads = 6, .seq = kSeq, .dropout = 0.1});
constexpr int64_t kTokens = kBatch * kSeq * 4, kActivation = kTokens * kDim;  // bytes in f32

// The collectives of forward and backward as one rank sees them, without data.
std::vector<CommEvent> collectives(const Config& config, const std::string& mesh, const std::string& plan) {
  std::vector<CommEvent> out;
  int ranks = 1;
  for (const auto& axis : parse_mesh(mesh)) ranks *= axis.size;
  dist::simulate(ranks, ranks - 1, [&](dist::World& world) {
    Placement p = place(world, config, mesh, plan);
    Gpt model = nn::build<Gpt>({.device = Device::Meta, .deferred = true}, config);
    nn::shard(model, *p.mesh, p.plan);
    auto tokens = [&] {
      return dist::replicate(empty({kBatch, config.seq}, {.dtype = DType::i64, .device = Device::Meta}), *p.mesh);
    };
    dist::record_collectives(true);
    model(tokens(), tokens()).backward();
    out = dist::recorded_collectives();
    dist::record_collectives(false);
  });
  return out;
}

// Counts by "phase kind", of collectives on activations (the part given of an all-gather is a share).
std::map<std::string, int> large(const std::vector<CommEvent>& events, int64_t activation, int64_t tp) {
  std::map<std::string, int> out;
  for (const auto& e : events) {
    int64_t whole = e.kind == CollectiveKind::all_gather ? e.bytes * tp : e.bytes;
    if (e.axis == "tp" && whole > activation * 3 / 4) ++out[e.phase + (" " + std::string(to_string(e.kind)))];
  }
  return out;
}

int64_t largest_other(const std::vector<CommEvent>& events, int64_t activation, int64_t tp) {
  int64_t out = 0;
  for (const auto& e : events)
    if (e.axis == "tp" && (e.kind == CollectiveKind::all_gather ? e.bytes * tp : e.bytes) <= activation * 3 / 4)
      out = std::max(out, e.bytes);
  return out;
}

using Counts = std::map<std::string, int>;

}  // namespace

TEST_CASE("tp: two all-reduces of an activation per layer forward, two backward, and nothing else of that size") {
  for (int tp : {2, 3, 4}) {
    auto events = collectives(kConfig, "tp=" + std::to_string(tp), "tp");
    // The embedding's sum forward, the head's input backward.
    CHECK(large(events, kActivation, tp) ==
          Counts{{"forward all_reduce", 2 * kLayers + 1}, {"backward all_reduce", 2 * kLayers + 1}});
    CHECK(largest_other(events, kActivation, tp) <= 2 * kTokens);
    for (const auto& e : events) CHECK(e.kind == CollectiveKind::all_reduce);
  }
}

TEST_CASE("tp_sp: two all-gathers and two reduce-scatters per layer forward, the same backward") {
  for (int tp : {2, 4}) {
    auto events = collectives(kConfig, "tp=" + std::to_string(tp), "tp_sp");
    // The embedding's sum is scattered and the head's input gathered: one more of each.
    int n = 2 * kLayers + 1;
    CHECK(large(events, kActivation, tp) == Counts{{"forward all_gather", n},
                                                   {"forward reduce_scatter", n},
                                                   {"backward all_gather", n},
                                                   {"backward reduce_scatter", n}});
    // Left are the position table's gradient, norms and biases, and the loss.
    CHECK(largest_other(events, kActivation, tp) <= std::max(kSeq * kDim * 4, 20 * kLayers * kDim * 4));
  }
}

TEST_CASE("the same with data parallel beside: a share of the batch") {
  auto tp = collectives(kConfig, "dp=2,tp=2", "dp_tp");
  CHECK(large(tp, kActivation / 2, 2) ==
        Counts{{"forward all_reduce", 2 * kLayers + 1}, {"backward all_reduce", 2 * kLayers + 1}});
  auto sp = collectives(kConfig, "dp=2,tp=2", "dp_tp_sp");
  int n = 2 * kLayers + 1;
  CHECK(large(sp, kActivation / 2, 2) == Counts{{"forward all_gather", n},
                                                {"forward reduce_scatter", n},
                                                {"backward all_gather", n},
                                                {"backward reduce_scatter", n}});
}

TEST_CASE("grouped heads add nothing where they divide") {
  Config config = kConfig;
  config.kv_heads = 2;
  auto events = collectives(config, "tp=2", "tp");
  CHECK(large(events, kActivation, 2) ==
        Counts{{"forward all_reduce", 2 * kLayers + 1}, {"backward all_reduce", 2 * kLayers + 1}});
  CHECK(largest_other(events, kActivation, 2) <= 2 * kTokens);
}

TEST_CASE("loss on split logits: at most three collectives of a number per token forward, none backward") {
  for (const char* plan : {"tp", "tp_sp"}) {
    int forward = 0;
    auto events = collectives(kConfig, "tp=4", plan);
    size_t last_large = 0;
    for (size_t i = 0; i < events.size(); ++i)
      if (std::string(events[i].phase) == "forward" && events[i].bytes >= kActivation / 8) last_large = i;
    for (size_t i = last_large + 1; i < events.size() && std::string(events[i].phase) == "forward"; ++i, ++forward)
      CHECK(events[i].bytes <= 2 * kTokens);
    CHECK(forward >= 2);
    CHECK(forward <= 3);
    for (const auto& e : events) CHECK(!(std::string(e.phase) == "backward" && e.label == "cross_entropy"));
  }
}

namespace {
Batch some_batch(const Trainer& trainer) {
  Tensor tokens = randint(0, 256, {kBatch, kSeq}, {.seed = 1});
  return batch_of(tokens, tokens, trainer.token_layout());
}
}  // namespace

TEST_CASE("dp: one reduction of the parameters' bytes per step, in buckets, and scalars") {
  dist::run_ranks({.ranks = 2, .checked = 0}, [&](dist::World& world) {
    TrainOptions o{.model = kConfig, .step = {.batch = kBatch}, .steps = 2};
    Trainer trainer(o, place(world, o.model, "dp=2", "dp"));
    for (int64_t step = 1; step <= 2; ++step) {
      Batch batch = some_batch(trainer);
      dist::record_collectives(true);
      trainer.step(batch, step);
      int64_t bytes = 0, buckets = 0;
      for (const auto& e : dist::recorded_collectives()) {
        CHECK(e.axis == "dp");
        CHECK(e.kind == CollectiveKind::all_reduce);
        if (e.bytes <= 16) continue;
        CHECK(std::string(e.phase) == "backward");
        bytes += e.bytes;
        ++buckets;
      }
      dist::record_collectives(false);
      CHECK(bytes == parameter_count(trainer.model()) * 4);
      CHECK(buckets == (bytes + autograd::kBucketBytes - 1) / autograd::kBucketBytes);
    }
  });
}

TEST_CASE("what is counted without data is what a run with data does") {
  for (const char* plan : {"tp", "tp_sp"}) {
    auto planned = collectives(kConfig, "tp=2", plan);
    dist::run_ranks({.ranks = 2, .checked = 0}, [&](dist::World& world) {
      TrainOptions o{.model = kConfig, .step = {.batch = kBatch}, .steps = 1};
      Trainer trainer(o, place(world, o.model, "tp=2", plan));
      Batch batch = some_batch(trainer);
      dist::record_collectives(true);
      trainer.gradients(batch, 1);
      std::vector<CommEvent> run;
      for (const auto& e : dist::recorded_collectives())
        if (e.bytes > 16) run.push_back(e);
      dist::record_collectives(false);
      REQUIRE(run.size() == planned.size());
      if (world.rank() != 1) return;  // the simulated rank
      for (size_t i = 0; i < run.size(); ++i) {
        CHECK(run[i].kind == planned[i].kind);
        CHECK(run[i].bytes == planned[i].bytes);
      }
    });
  }
}
