// Checkpoints of a run in a folder: who may write there, courses that were left, links, memory and work of a save.
#include "nn/checkpoint_support.h"

#include <cleave/nn/internal/file_operations.h>
#include <cleave/nn/internal/save_plan.h>

#include <atomic>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

using namespace cleave;
using nn::detail::FileOperations;
using test::contents;
using test::names;
using test::TemporaryFolder;

namespace {

nn::CheckpointContent content(double value) {
  return {.groups = {{"model", {{"x", full({3, 5}, value)}}}}, .values = {{"step", static_cast<int64_t>(value)}}};
}

/// Counts what a rank does to files, and can hold its writes.
class Counting : public FileOperations {
 public:
  void write(int file, const std::string& path, const void* data, int64_t bytes, int64_t offset) override {
    while (held && offset > 0) usleep(1000);  // not the header, which is written at once
    written += path.ends_with(".safetensors") ? bytes : 0;
    FileOperations::write(file, path, data, bytes, offset);
  }
  void sync(int file, const std::string& path) override {
    synced += path.ends_with(".safetensors");
    FileOperations::sync(file, path);
  }
  std::atomic<int64_t> written{0}, synced{0};
  std::atomic<bool> held{false};
};

}  // namespace

TEST_CASE("one run at a time writes to a folder, one save to a name; the other is told, and harms nothing") {
  TemporaryFolder folder;
  test::on_ranks({1, 2}, [&](dist::World& world) {
    {
      nn::CheckpointSeries series(folder.path("run"));
      test::check_throws<FileError>([&] { nn::CheckpointSeries(folder.path("run"), {.lock_seconds = 0.1}); },
                                    {"run", "another run is writing"});
      series.save(1, content(1));
      Counting files;
      files.held = true;
      nn::CheckpointSave save = nn::save_checkpoint_async(folder.path("c"), content(2), {.files = &files});
      test::check_throws<FileError>([&] { nn::save_checkpoint(folder.path("c"), content(3)); },
                                    {"c cannot be written", "another save"});
      files.held = false;
      save.wait();
      CHECK(nn::Checkpoint(folder.path("c")).integer("step") == 2);
      world.communicator().barrier();
    }
    nn::CheckpointSeries again(folder.path("run"), {.lock_seconds = 0});
    CHECK(nn::find_latest(folder.path("run")).step == 1);
    world.communicator().barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder.path("c"));
  });
}

TEST_CASE("a run that goes on behind an older checkpoint leaves the later ones to nobody") {
  TemporaryFolder folder;
  std::string root = folder.path("run");
  test::on_ranks({1, 2}, [&](dist::World& world) {
    {
      nn::CheckpointSeries series(root, {.keep = 2});
      for (int64_t step : {3, 6, 8}) series.save(step, content(static_cast<double>(step)));
      CHECK(series.abandon_after(8).empty());
      CHECK(series.abandon_after(6) == std::vector<std::string>{"step-00000008"});
      CHECK(nn::find_latest(root).step == 6);
      CHECK(nn::find_latest(root).skipped.empty());
      series.save(9, content(9));
      world.communicator().barrier();
      // Not 8, although it is newer than 6.
      CHECK(names(folder, "run") ==
            std::vector<std::string>{"latest", "step-00000006", "step-00000008.abandoned", "step-00000009"});
      world.communicator().barrier();
      CHECK(series.abandon_after(4) == std::vector<std::string>{"step-00000009", "step-00000006"});
      CHECK(nn::find_latest(root).folder.empty());
      CHECK(nn::find_latest(root).skipped.empty());
    }
    world.communicator().barrier();
    if (world.rank() == 0) std::filesystem::remove_all(root);
    world.communicator().barrier();
  });
}

TEST_CASE("a save through a symbolic link goes where the link leads, and the link stays") {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("disk"));
  std::filesystem::create_directories(folder.path("here"));
  std::filesystem::create_symlink("../disk/model", folder.path("here/model"));
  std::filesystem::create_symlink("model", folder.path("here/again"));
  for (double value : {1.0, 2.0}) {
    nn::save_checkpoint(folder.path(value == 1 ? "here/again" : "here/model/"), content(value));
    CHECK(std::filesystem::is_symlink(folder.path("here/model")));
    CHECK(nn::Checkpoint(folder.path("here/again")).integer("step") == static_cast<int64_t>(value));
    CHECK(names(folder, "disk") == std::vector<std::string>{"model"});
    CHECK(names(folder, "here") == std::vector<std::string>{"again", "model"});
  }
  std::filesystem::create_symlink("file", folder.path("link"));
  nn::save_safetensors(folder.path("link"), {{"x", ones({2})}});
  CHECK(std::filesystem::is_symlink(folder.path("link")));
  CHECK(nn::SafetensorsFile(folder.path("file")).find("x") != nullptr);
  std::filesystem::create_symlink("loop", folder.path("loop"));
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("loop"), content(1)), FileError);
}

TEST_CASE("a snapshot takes the bytes that the rank is to write, and no more") {
  TemporaryFolder folder;
  test::on_ranks({1, 2, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"r", world.size()}});
    constexpr int64_t kRows = 256, kColumns = 512;
    nn::NamedTensors tensors;
    for (int i = 0; i < 8; ++i)  // runs of columns are short on 4 ranks: these are brought together by rows first
      tensors.emplace_back("x" + std::to_string(i),
                           dist::distribute(full({kRows, kColumns}, i), mesh.layout(i % 2 ? "-, -" : "-, r")));
    int64_t whole = kRows * kColumns * 4, own = 8 * whole / world.size();
    int64_t before = memory_stats().active;
    reset_peak_memory();
    Counting files;
    nn::CheckpointSave save =
        nn::save_checkpoint_async(folder.path("c"), {.groups = {{"model", tensors}}}, {.files = &files});
    // The allocator rounds up a little; one tensor at a time is on its way.
    CHECK(memory_stats().active - before <= own + 8 * 64);
    CHECK(memory_stats().active - before >= own);
    CHECK(memory_stats().peak - before <= own + 3 * whole / world.size() + 8 * 64);
    save.wait();
    CHECK(memory_stats().active == before);
    CHECK(files.synced == 1);
    int64_t header = world.rank() == 0 ? nn::SafetensorsFile(folder.path("c/model.safetensors")).header_bytes() : 0;
    CHECK(files.written == own + header);
    world.communicator().barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder.path("c"));
    world.communicator().barrier();
  });
}

TEST_CASE("chunks that lie whole on a rank are hashed there; only those that lie on several are read again") {
  dist::run_ranks({.ranks = 3}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"r", 3}});
    constexpr int64_t kChunk = int64_t{1} << 20;
    auto shares = [&](const Shape& shape, const char* layout) {
      TensorType type{DType::f32, shape, mesh.layout(layout).resolve(shape.rank()).data()};
      int64_t bytes = numel(shape) * 4;
      std::vector<nn::detail::Chunk> chunks;
      for (int64_t at = 0; at < bytes; at += kChunk) chunks.push_back({0, 0, at, std::min(kChunk, bytes - at)});
      nn::detail::give_whole_chunks(chunks, type, nn::detail::Owners(3).assign(type));
      std::string out;
      for (const auto& c : chunks) out += c.whole ? std::to_string(c.rank) : "-";
      return out;
    };
    CHECK(shares({9, 1 << 18}, "r, -") == "000111222");
    CHECK(shares({9, 1 << 18}, "-, -") == "000000000");
    CHECK(shares({8, 1 << 18}, "r, -") == "00011122");
    CHECK(shares({7, 3 << 17}, "r, -") == "0000-11-222");  // 10.5 chunks; 4.5, 3, 3
    CHECK(shares({9, 1 << 18}, "-, r") == "---------");
    CHECK(shares({2, 3 << 18}, "-, r") == "012012");
    CHECK(shares({5, 1}, "r, -") == "-");
    CHECK(shares({1}, "r") == "0");
    CHECK(shares({0, 4}, "r, -").empty());
    CHECK(shares({}, "") == "0");
  });
}

TEST_CASE("an error behind the program's back comes with the next call, on every rank, with the path") {
  TemporaryFolder folder;
  test::on_ranks({1, 3}, [&](dist::World& world) {
    struct Full : FileOperations {
      void write(int, const std::string& path, const void*, int64_t, int64_t) override {
        throw FileError(path + " cannot be written: No space left on device");
      }
    } files;
    nn::CheckpointSeries series(
        folder.path("run"),
        {.save = {.files = world.rank() == world.size() - 1 ? static_cast<FileOperations*>(&files) : nullptr}});
    nn::CheckpointContent what = content(4);
    dist::DeviceMesh mesh(world, {{"r", world.size()}});
    what.groups[0].tensors[0].second = dist::distribute(full({5, 2}, 1), mesh.layout("r, -"));
    test::check_throws<FileError>(
        [&] {
          series.save_async(4, what);
          for (;;)
            if (series.poll()) break;
        },
        {"step-00000004", "No space left"});
    CHECK(!series.saving());
    CHECK(series.poll());
    CHECK(series.saved() == -1);
    world.communicator().barrier();
    CHECK(names(folder, "run").empty());
    world.communicator().barrier();
  });
}

TEST_CASE("a save that is given up ends soon, whatever it has to write") {
  TemporaryFolder folder;
  Counting files;
  files.held = true;
  {
    std::jthread later;  // joined after the save has been given up: it outlives neither
    nn::CheckpointSave save = nn::save_checkpoint_async(
        folder.path("c"), {.groups = {{"model", {{"x", zeros({64, 1 << 18})}}}}}, {.files = &files});
    later = std::jthread([&] {
      usleep(20000);
      files.held = false;
    });
  }
  CHECK(files.written <= int64_t{8} << 20);  // of 64 MiB
  CHECK(names(folder).empty());
}
