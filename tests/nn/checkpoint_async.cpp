// Saves behind the program's back.
#include <cleave/nn/internal/checkpoint_files.h>

#include "nn/checkpoint_support.h"

using namespace cleave;
using test::contents;
using test::TemporaryFolder;

namespace {

/// Keeps the names of the spans of files.
struct Spans : Observer {
  std::vector<std::string> seen, later;
  int64_t bytes = 0;
  void begin(const Span& span) override {
    if (span.kind == SpanKind::file) seen.emplace_back(span.name);
  }
  void end(const Span&) override {}
  void finished(const Span& span, int64_t began, int64_t ended) override {
    if (span.kind != SpanKind::file) return;
    later.emplace_back(span.name);
    if (later.back() == "write") bytes += static_cast<const nn::FileSpan&>(span).bytes;
    CHECK(ended >= began);
  }
};

nn::CheckpointContent content(dist::World& world, double value) {
  dist::DeviceMesh mesh(world, {{"r", world.size()}});
  return {.groups = {{"model",
                      {{"x", dist::distribute(full({257, 3}, value), mesh.layout("r, -"))},
                       {"plain", full({5}, value)},
                       {"whole", dist::distribute(full({31}, value), mesh.layout("-"))}}}},
          .values = {{"step", int64_t{4}}}};
}

}  // namespace

TEST_CASE("values that are overwritten at once are saved as they were, byte for byte as by a save that waits") {
  TemporaryFolder folder;
  test::on_ranks({1, 2, 3}, [&](dist::World& world) {
    nn::save_checkpoint(folder.path("sync"), content(world, 2));
    auto what = content(world, 2);
    nn::CheckpointSave save = nn::save_checkpoint_async(folder.path("async"), what);
    NoGrad off;
    for (auto& [name, x] : what.groups[0].tensors) fill_(x, 7);
    // Training goes on, with collectives of its own.
    for (int i = 0; i < 20; ++i) (void)item<double>(sum(what.groups[0].tensors[0].second));
    save.wait();
    save.wait();
    CHECK(contents(folder, "async") == contents(folder, "sync"));
  });
}

TEST_CASE("polling completes a save without waiting; what has its name is complete") {
  TemporaryFolder folder;
  test::on_ranks({1, 2}, [&](dist::World& world) {
    nn::CheckpointSave save = nn::save_checkpoint_async(folder.path("c"), content(world, 1));
    CHECK(!std::filesystem::exists(folder.path("c")));
    while (!save.poll())
      if (std::filesystem::exists(folder.path("c"))) nn::detail::require_complete(folder.path("c"));
    CHECK(save.poll());
    nn::Checkpoint(folder.path("c")).verify();
    world.communicator().barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder.path("c"));
  });
}

TEST_CASE("a save that nobody waits for leaves nothing") {
  TemporaryFolder folder;
  test::on_ranks({1, 2},
                 [&](dist::World& world) { (void)nn::save_checkpoint_async(folder.path("c"), content(world, 1)); });
  CHECK(test::names(folder).empty());
}

TEST_CASE("observers see saves and loads with their bytes, and the traffic has a phase of its own") {
  TemporaryFolder folder;
  test::on_ranks({2}, [&](dist::World& world) {
    Spans spans;
    dist::reset_comm_counts();
    Observer* before = Observer::set(&spans);
    nn::save_checkpoint_async(folder.path("c"), content(world, 1)).wait();
    auto target = content(world, 0);
    nn::Checkpoint(folder.path("c")).load(target.groups[0].tensors);
    Observer::set(before);
    // The uneven blocks of x meet in its one chunk, which is hashed from the file; rank 0 completes.
    CHECK(spans.later == (world.rank() == 0 ? std::vector<std::string>{"write", "hash", "complete"}
                                            : std::vector<std::string>{"write", "hash"}));
    CHECK(spans.seen == std::vector<std::string>{"save", "load"});
    int64_t bytes = spans.bytes;
    world.communicator().all_reduce(&bytes, 1, DType::i64);
    CHECK(bytes == (257 * 3 + 5 + 31) * 4);  // every element by one rank
    for (const auto& c : dist::comm_counts())
      if (c.axis == "world" && c.kind == dist::CollectiveKind::all_gather) CHECK(c.phase == "checkpoint");
  });
}

TEST_CASE("a series: one save at a time, the pointer and the newest kept after each") {
  TemporaryFolder folder;
  test::on_ranks({1, 2}, [&](dist::World& world) {
    nn::CheckpointSeries series(folder.path("run"), {.keep = 2});
    CHECK(series.poll());
    for (int64_t step : {1, 2, 3}) series.save_async(step, content(world, static_cast<double>(step)));
    CHECK(series.saved() == 2);
    series.wait();
    CHECK(series.saved() == 3);
    CHECK(test::names(folder, "run") == std::vector<std::string>{"latest", "step-00000002", "step-00000003"});
    CHECK(folder.read("run/latest") == "step-00000003\n");
    world.communicator().barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder.path("run"));
  });
}
