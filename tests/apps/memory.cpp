// The memory plan beside what the allocator of a real run counts.
#include "gpt/memory.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/ops/creation.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "apps/temporary_folder.h"
#include "gpt/fit.h"
#include "gpt/run_checkpoints.h"
#include "gpt/trainer.h"

using namespace gpt;
using gpt::test::TemporaryFolder;
using namespace cleave;

namespace {

TrainOptions options_for(DType dtype, double dropout) {
  return {.model = completed({.vocab = 256, .layers = 2, .dim = 64, .heads = 4, .seq = 64, .dropout = dropout}),
          .step = {.batch = 8, .dtype = dtype},
          .steps = 3};
}

Batch real_batch(const TrainOptions& o, dist::Layout layout) {
  Batch batch;
  int64_t parts = o.step.accumulate, row = 0;
  for (int64_t i = 0; i < parts; ++i) {
    int64_t rows = o.step.batch / parts + (i < o.step.batch % parts);
    auto tokens = [&](int64_t seed) {
      return randint(0, o.model.vocab, {rows, o.model.seq}, {.seed = static_cast<uint64_t>(seed), .layout = layout});
    };
    batch.parts.push_back(
        {.ids = tokens(1 + i), .targets = tokens(7 + i), .first_row = row, .tokens = rows * o.model.seq});
    row += rows;
    batch.tokens += batch.parts.back().tokens;
  }
  return batch;
}

// The allocator's peak on each rank in two real steps, an evaluation, a save, and a step beside or without it.
std::vector<int64_t> peaks(const TrainOptions& o, int ranks, const MemoryCase& c) {
  std::vector<int64_t> out(static_cast<size_t>(ranks));
  TemporaryFolder folder;
  auto overlap = c.overlap ? dist::Overlap::on : dist::Overlap::off;
  dist::run_ranks({.ranks = ranks, .checked = 0, .overlap = overlap}, [&](dist::World& world) {
    Trainer trainer(o, place(world, o.model, o.mesh, o.plan));
    auto step = [&](int64_t number) { trainer.step(real_batch(o, trainer.token_layout()), number); };
    step(1);
    step(2);
    trainer.evaluate(real_batch(o, trainer.token_layout()));
    std::optional<nn::CheckpointSave> save;
    std::string saved = folder.path("saved");
    if (c.saving == Saving::waited) nn::save_checkpoint(saved, {.groups = checkpoint_groups(trainer)});
    if (c.saving == Saving::copied || c.saving == Saving::behind)
      save = nn::save_checkpoint_async(saved, {.groups = checkpoint_groups(trainer)});
    if (c.saving == Saving::none || c.saving == Saving::behind) step(3);
    if (save) save->wait();
    if (c.resumed) {  // the state that is there now stands for the one that is made as it is loaded
      nn::save_checkpoint(folder.path("resumed"), {.groups = checkpoint_groups(trainer)});
      nn::Checkpoint file(folder.path("resumed"));
      auto layout_of = [&](const std::string& name, const TensorType& type) {
        for (const auto& [known, p] : trainer.model().named_parameters())
          if (name.substr(0, name.rfind('.')) == known && p.is_distributed() && p.shape() == type.shape)
            return p.state_layout();
        return dist::Layout();
      };
      nn::NamedTensors optimizer = file.read("optimizer", layout_of);
      if (trainer.ema()) trainer.ema()->load_state(file.read("ema", layout_of));
    }
    out[static_cast<size_t>(world.rank())] = memory_stats().peak;
  });
  return out;
}

struct Place {
  int ranks;
  const char *mesh, *plan;
};
constexpr Place kPlaces[] = {{1, "", ""},
                             {1, "dp=1", "zero3"},
                             {2, "dp=2", "dp"},
                             {2, "tp=2", "tp"},
                             {2, "tp=2", "tp_sp"},
                             {2, "dp=2", "zero1"},
                             {2, "dp=2", "zero2"},
                             {2, "dp=2", "zero3"},
                             {3, "dp=3", "zero3"},
                             {4, "dp=4", "zero1"},
                             {4, "rep=2,shard=2", "hsdp"},
                             {4, "dp=2,tp=2", "zero1_tp"},
                             {4, "dp=2,tp=2", "zero2_tp"},
                             {4, "dp=2,tp=2", "zero3_tp"},
                             {4, "dp=2,tp=2", "zero3_tp_sp"},
                             {4, "dp=2,tp=2", "dp_tp_sp"}};

// Sizes that divide by no mesh: blocks are uneven.
TrainOptions options_at(const Place& p) {
  return {.model = completed({.vocab = 131, .layers = 1, .dim = 36, .heads = 6, .seq = 24}),
          .step = {.batch = 7},
          .steps = 3,
          .mesh = p.mesh,
          .plan = p.plan};
}

void check(const TrainOptions& o, int ranks, const std::string& what, const MemoryCase& c = {}, bool range_too = true) {
  CAPTURE(what);
  CAPTURE(o.plan);
  CAPTURE(o.mesh);
  std::vector<int64_t> real = peaks(o, ranks, c);
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    auto planned = static_cast<double>(planned_memory(o, ranks, rank, c).peak);
    CHECK(planned / static_cast<double>(real[static_cast<size_t>(rank)]) == doctest::Approx(1).epsilon(0.01));
  }
  if (!range_too) return;
  MemoryRange range = planned_range(o, ranks, c);
  auto [low, high] = std::minmax_element(real.begin(), real.end());
  CHECK(static_cast<double>(range.most.peak) / static_cast<double>(*high) == doctest::Approx(1).epsilon(0.01));
  CHECK(static_cast<double>(range.least) / static_cast<double>(*low) == doctest::Approx(1).epsilon(0.01));
}

struct Variant {
  const char* name;
  void (*change)(TrainOptions&);
  MemoryCase c = {};
};
// Whose state is more than what a step adds to it.
void large_model(TrainOptions& o) {
  o.step.batch = 2, o.step.recompute = {"all"};
  o.model = completed({.vocab = 1031, .layers = 1, .dim = 60, .heads = 6, .seq = 4});
}
const Variant kVariants[] = {
    {"f64", [](TrainOptions& o) { o.step.dtype = DType::f64; }},
    {"f16", [](TrainOptions& o) { o.step.dtype = DType::f16; }},
    {"autocast bf16", [](TrainOptions& o) { o.step.autocast = DType::bf16; }},
    {"autocast f16", [](TrainOptions& o) { o.step.autocast = DType::f16; }},
    {"gradients of 16 bits", [](TrainOptions& o) { o.step.dtype = o.step.gradients = o.step.reduce = DType::bf16; }},
    {"three uneven parts", [](TrainOptions& o) { o.step.accumulate = 3; }},
    {"parts of bf16", [](TrainOptions& o) { o.step.accumulate = 2, o.step.dtype = DType::bf16; }},
    {"recomputed whole, dropout", [](TrainOptions& o) { o.step.recompute = {"all"}, o.model.dropout = 0.1; }},
    {"recomputed by pattern", [](TrainOptions& o) { o.step.recompute = {"blocks.*.mlp"}; }},
    {"loss in chunks", [](TrainOptions& o) { o.step.loss_chunk = 16; }},
    {"loss in chunks of bf16", [](TrainOptions& o) { o.step.loss_chunk = 7, o.step.dtype = DType::bf16; }},
    {"rope, rms, shared keys, tied",
     [](TrainOptions& o) {
       o.model.positions = "rope", o.model.norm = "rms", o.model.kv_heads = 2, o.model.tied = true;
     }},
    {"averages", [](TrainOptions& o) { o.update.ema = 0.9; }},
    {"adam", [](TrainOptions& o) { o.update.optimizer = "adam"; }},
    {"sgd", [](TrainOptions& o) { o.update.optimizer = "sgd"; }},
    {"adagrad", [](TrainOptions& o) { o.update.optimizer = "adagrad"; }},
    {"rmsprop", [](TrainOptions& o) { o.update.optimizer = "rmsprop"; }},
    {"lion", [](TrainOptions& o) { o.update.optimizer = "lion"; }},
    {"adafactor", [](TrainOptions& o) { o.update.optimizer = "adafactor"; }},
    {"lamb", [](TrainOptions& o) { o.update.optimizer = "lamb", o.step.dtype = DType::bf16; }},
    {"muon", [](TrainOptions& o) { o.update.optimizer = "muon"; }},
    {"muon in bf16", [](TrainOptions& o) { o.update.optimizer = "muon", o.step.dtype = DType::bf16; }},
    {"overlap", [](TrainOptions&) {}, {.overlap = true}},
    {"overlap, parts", [](TrainOptions& o) { o.step.accumulate = 3; }, {.overlap = true}},
    {"overlap, recomputed, bf16",
     [](TrainOptions& o) { o.step.recompute = {"all"}, o.step.dtype = DType::bf16; },
     {.overlap = true}},
    {"saving", [](TrainOptions&) {}, {.saving = Saving::behind}},
    {"small batches of a large model, saved at the end", large_model, {.saving = Saving::copied}},
    {"small batches of a large model, saved without copies", large_model, {.saving = Saving::waited}},
    {"going on", [](TrainOptions&) {}, {.resumed = true}},
    {"going on with averages, bf16",
     [](TrainOptions& o) { o.update.ema = 0.9, o.step.dtype = DType::bf16; },
     {.resumed = true}},
    {"small batches of a large model: gradients in blocks that scratch had",
     [](TrainOptions& o) {
       o.step.batch = 2, o.step.recompute = {"all"}, o.step.dtype = DType::bf16;
       o.model = completed({.vocab = 131, .layers = 2, .dim = 120, .heads = 6, .seq = 16});
     }},
    {"saving averages of bf16, overlap",
     [](TrainOptions& o) { o.update.ema = 0.9, o.step.dtype = DType::bf16; },
     {.overlap = true, .saving = Saving::behind}},
    {"a large head, evaluated",
     [](TrainOptions& o) { o.model.vocab = 1031, o.step.recompute = {"all"}, o.update.ema = 0.9; }},
    {"all of it", [](TrainOptions& o) {
       o.update.ema = 0.9, o.step.dtype = DType::f16, o.step.accumulate = 2, o.step.recompute = {"blocks.*"};
       o.step.loss_chunk = 16, o.model.dropout = 0.1;
     }}};

}  // namespace

TEST_CASE("the planned peak of every rank is the allocator's within 1 percent, for every plan") {
  for (const Place& p : kPlaces)
    for (DType dtype : {DType::f32, DType::bf16}) {
      TrainOptions o = options_at(p);
      o.step.dtype = dtype;
      check(o, p.ranks, dtype == DType::f32 ? "f32" : "bf16", {}, dtype == DType::f32);
    }
}

TEST_CASE("the planned peak knows every option of a step, communication beside it, evaluation and saves") {
  size_t at = 0;
  const char* all = std::getenv("CLEAVE_ALL_MEMORY_CASES");  // each option under each plan: minutes
  for (const Variant& v : kVariants) {
    bool everywhere = all || v.change == large_model;  // where it peaks depends on the plan
    for (size_t i = 0; i < (everywhere ? std::size(kPlaces) : 2); ++i, at += everywhere ? 1 : 5) {
      const Place& p = kPlaces[at % std::size(kPlaces)];
      TrainOptions o = options_at(p);
      if (v.c.overlap) o.model.layers = 2;
      v.change(o);
      check(o, p.ranks, v.name, v.c, v.c.saving != Saving::none);
    }
  }
}

TEST_CASE("a plan file whose parameters are stored split") {
  TemporaryFolder folder;
  std::string stored =
      folder.write("stored.toml", "[parameter]\n\"**.weight\" = \"dp, ... => ...\"\n[forward]\ninput = [\"dp, -\"]\n");
  TrainOptions o = options_at({2, "dp=2", ""});
  o.plan = stored;
  check(o, 2, "file");
}

TEST_CASE("the rows of a plan add up to its peak, and name what is held") {
  TrainOptions o = options_for(DType::bf16, 0.0);
  o.mesh = "dp=2";
  o.plan = "dp";
  nn::MemoryPlan plan = planned_memory(o, 2);
  int64_t sum = 0, parameters = 0;
  for (const nn::MemoryRow& kind : plan.kinds) sum += kind.at_peak;
  CHECK(sum == plan.peak);
  {
    Gpt model(o.model);
    parameters = parameter_count(model);
  }
  // bf16 parameters; f32 gradients, moments and masters; blocks are rounded up
  auto near = [](int64_t bytes, int64_t exact) { return bytes >= exact && bytes < exact + exact / 20; };
  CHECK(near(plan.of(nn::MemoryKind::parameters).largest, 2 * parameters));
  CHECK(near(plan.of(nn::MemoryKind::optimizer).largest, 12 * parameters));
  CHECK(plan.of(nn::MemoryKind::gradients).largest >= 4 * parameters);
  CHECK(plan.of(nn::MemoryKind::communication).largest >= 4 * parameters);
  bool mlp = false;
  for (const nn::MemoryRow& row : plan.rows)
    mlp |= row.kind == nn::MemoryKind::saved && row.name == "blocks.1.mlp.up" && row.largest > 0;
  CHECK(mlp);
  std::string table = plan.table();
  CHECK(table.find("blocks.*.mlp.up  (2 of them)") != std::string::npos);
  CHECK(memory_text(o).find(table) != std::string::npos);
  o.mesh = o.plan = "";
  CHECK(memory_text(o).find("memory of rank 0 of 1,") == 0);
  o.mesh = "dp=8";
  o.plan = "tp";
  CHECK_THROWS_AS(memory_text(o), ValueError);
}

TEST_CASE("a model of 7 B parameters on 64 ranks") {
  TrainOptions o{.model = completed({.vocab = 32000, .layers = 32, .dim = 4096, .heads = 32, .seq = 2048}),
                 .step = {.batch = 8, .dtype = DType::bf16},
                 .mesh = "dp=8,tp=8",
                 .plan = "dp_tp_sp"};
  nn::MemoryPlan plan = planned_memory(o, 64);
  int64_t parameters = 6'700'000'000 / 8;
  CHECK(plan.of(nn::MemoryKind::parameters).largest > 2 * parameters * 9 / 10);
  CHECK(plan.of(nn::MemoryKind::optimizer).largest > 12 * parameters * 9 / 10);
  CHECK(plan.peak < int64_t{40} << 30);
}

TEST_CASE("sizes as people write them") {
  CHECK(parse_bytes("80GB") == 80'000'000'000);
  CHECK(parse_bytes("64 GiB") == int64_t{64} << 30);
  CHECK(parse_bytes("1.5KiB") == 1536);
  CHECK(parse_bytes("12") == 12);
  for (const char* bad : {"", "GB", "-1GB", "0", "1gb", "1GB!", "nan", "1e40"})
    CHECK_THROWS_AS(parse_bytes(bad), ValueError);
}

TEST_CASE("whether it fits, and what would make it fit") {
  TrainOptions o = options_for(DType::f32, 0.0);
  o.mesh = "dp=4";
  o.plan = "dp";
  TrainOptions at_zero3 = o;
  at_zero3.plan = "zero3";
  int64_t peak = planned_memory(o, 4).peak, zero3 = planned_memory(at_zero3, 4).peak;
  auto says = [&](int64_t limit, const char* what) {
    return memory_text(o, {}, limit).find(what) != std::string::npos;
  };
  CHECK(says(peak, "it fits in"));
  CHECK_FALSE(says(peak, "not fit"));
  CHECK(says(peak - 1, "it does not fit in"));
  CHECK(says(zero3, "\nit fits with --plan zero3\n"));
  CHECK(says(1000, "that is not enough"));
  TrainOptions both = at_zero3;  // changes add up
  both.step.recompute = {"all"};
  int64_t together = planned_memory(both, 4).peak;
  REQUIRE(together < zero3);
  CHECK(says(together, "\nit fits with --plan zero3 --recompute all\n"));
}
