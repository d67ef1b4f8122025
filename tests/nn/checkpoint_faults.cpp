// Saves that end at any write, fsync or rename, by a crash of the program or of the machine, or that fail on one rank.
#include "nn/checkpoint_support.h"

#include <cleave/nn/internal/file_operations.h>

#include <atomic>
#include <mutex>

#include <sys/wait.h>
#include <unistd.h>

using namespace cleave;
using nn::detail::FileOperations;
using test::names;
using test::TemporaryFolder;

namespace {

/// Counts what a save does and ends the process at the `last`-th of it: before it, or (writes) half way through. With
/// `power` the machine goes: what was not synced is lost, contents and names.
class Crashing : public FileOperations {
 public:
  Crashing(int last, bool power, bool exchanges = true) : last_(last), power_(power), exchanges_(exchanges) {}
  int count() const { return count_; }

  void make_folder(const std::string& path) override {
    reach();
    FileOperations::make_folder(path);
  }
  int create(const std::string& path, int64_t bytes) override {
    reach();
    int file = FileOperations::create(path, bytes);
    std::lock_guard lock(mutex_);
    dirty_[path] = true;
    return file;
  }
  void write(int file, const std::string& path, const void* data, int64_t bytes, int64_t offset) override {
    {
      std::lock_guard lock(mutex_);
      dirty_[path] = true;
    }
    if (++count_ == last_) {
      FileOperations::write(file, path, data, bytes / 2, offset);
      end();
    }
    FileOperations::write(file, path, data, bytes, offset);
  }
  void sync(int file, const std::string& path) override {
    reach();
    FileOperations::sync(file, path);
    std::lock_guard lock(mutex_);
    dirty_[path] = false;
  }
  void sync_folder(const std::string& path) override {
    reach();
    FileOperations::sync_folder(path);
    std::lock_guard lock(mutex_);
    std::erase_if(moved_, [&](const Move& m) { return nn::detail::parent_folder(m.to) == path; });
  }
  void rename(const std::string& from, const std::string& to) override {
    reach();
    bool replaced = nn::detail::exists(to);
    FileOperations::rename(from, to);
    std::lock_guard lock(mutex_);
    if (!replaced) moved_.push_back({from, to, false});
  }
  bool exchange(const std::string& a, const std::string& b) override {
    reach();
    if (!exchanges_ || !FileOperations::exchange(a, b)) return false;
    std::lock_guard lock(mutex_);
    moved_.push_back({a, b, true});
    return true;
  }
  void remove(const std::string& path) override {
    reach();
    FileOperations::remove(path);
  }

 private:
  struct Move {
    std::string from, to;
    bool exchanged;
  };
  void reach() {
    if (++count_ == last_) end();
  }
  [[noreturn]] void end() {
    std::lock_guard lock(mutex_);
    if (power_) {
      for (const auto& [path, dirty] : dirty_)
        if (dirty) (void)!truncate(path.c_str(), 0);
      while (!moved_.empty()) {
        const Move& m = moved_.back();
        m.exchanged ? (void)FileOperations::exchange(m.to, m.from) : (void)::rename(m.to.c_str(), m.from.c_str());
        moved_.pop_back();
      }
    }
    _exit(7);
  }
  int last_;
  bool power_, exchanges_;
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::map<std::string, bool> dirty_;
  std::vector<Move> moved_;
};

nn::CheckpointContent content(const Tensor& x, int64_t step) {
  return {.groups = {{"model", {{"x", x}, {"y", x}}}, {"optimizer", {{"x.m", x}}}}, .values = {{"step", step}}};
}

/// Whether `f` came to its end in a child process; false if it was ended by _exit(7).
bool survives(const std::function<void()>& f) {
  pid_t child = fork();
  if (child == 0) {
    try {
      f();
      _exit(0);
    } catch (...) { _exit(3); }
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7));
  return WEXITSTATUS(status) == 0;
}

// The checkpoint that a restart finds is complete and has the values of its step.
int64_t loaded_step(const std::string& root) {
  nn::FoundCheckpoint found = nn::find_latest(root, true);
  REQUIRE(!found.folder.empty());
  nn::Checkpoint file(found.folder);
  NoGrad off;
  Tensor x = zeros({3, 5}), y = zeros({3, 5});
  file.load({{"x", x}, {"y", y}});
  CHECK(file.integer("step") == found.step);
  CHECK(equal(x, full({3, 5}, static_cast<double>(found.step))));
  CHECK(equal(x, y));
  return found.step;
}

/// Saves step 2 after 1 (and once more over 2 with `again`) with a crash at every point.
void enumerate(int ranks, bool power, bool again, bool exchanges = true) {
  Tensor one = full({3, 5}, 1), two = full({3, 5}, 2);
  int old_ones = 0, new_ones = 0;
  for (int last = 1;; ++last) {
    CAPTURE(last);
    TemporaryFolder folder;
    std::string root = folder.path("run");
    nn::CheckpointSeries(root).save(1, content(one, 1));
    if (again) nn::CheckpointSeries(root).save(2, content(two, 2));
    Crashing files(last, power, exchanges);
    bool done = survives([&] {
      auto save = [&] { nn::CheckpointSeries(root, {.keep = 1, .save = {.files = &files}}).save(2, content(two, 2)); };
      if (ranks == 1)
        save();
      else
        dist::run_ranks({.ranks = ranks}, [&](dist::World&) { save(); });
    });
    if (!exchanges) nn::CheckpointSeries(root, {.keep = 1});  // as a run that goes on
    int64_t step = loaded_step(root);
    CHECK((step == 2 || (!again && !done)));
    (step == 1 ? old_ones : new_ones) += 1;
    // The next save cleans up.
    nn::CheckpointSeries(root, {.keep = 2}).save(3, content(full({3, 5}, 3), 3));
    CHECK(loaded_step(root) == 3);
    for (const auto& name : names(folder, "run")) CHECK(name.front() != '.');
    if (done) break;
    REQUIRE(last < 200);
  }
  CHECK(new_ones > 3);
  CHECK((again || old_ones > 15));
}

/// Fails the rank's n-th write.
class Failing : public FileOperations {
 public:
  explicit Failing(int at) : at_(at) {}
  void write(int file, const std::string& path, const void* data, int64_t bytes, int64_t offset) override {
    if (++count_ == at_) throw FileError(path + " cannot be written: No space left on device");
    FileOperations::write(file, path, data, bytes, offset);
  }

 private:
  int at_;
  std::atomic<int> count_{0};
};

}  // namespace

TEST_CASE("a crash of the program at every write, fsync and rename leaves the checkpoint before or this one") {
  enumerate(1, false, false);
}
TEST_CASE("a crash of the machine, which loses what was not synced") { enumerate(1, true, false); }
TEST_CASE("a crash while a step is saved again") {
  enumerate(1, false, true);
  enumerate(1, true, true);
}
TEST_CASE("a crash while a step is saved again, on a file system that cannot exchange two names") {
  enumerate(1, false, true, false);
  enumerate(1, true, true, false);
}
TEST_CASE("a crash of two ranks") { enumerate(2, false, false); }

TEST_CASE("a write error on one rank is the same error on all, and nothing changes") {
  TemporaryFolder folder;
  for (bool background : {false, true})
    for (int rank : {0, 1}) {
      CAPTURE(background);
      CAPTURE(rank);
      nn::save_checkpoint(folder.path("c"), content(full({3, 5}, 1), 1));
      auto before = test::contents(folder, "c");
      test::on_ranks({2, 3}, [&](dist::World& world) {
        dist::DeviceMesh mesh(world, {{"r", world.size()}});
        Failing files(world.rank() == rank ? 1 : 0);
        nn::SaveOptions options{.files = &files};
        auto what = content(dist::distribute(full({3, 5}, 2), mesh.layout("r, -")), 2);
        std::string said = test::message_of<FileError>([&] {
          if (background)
            nn::save_checkpoint_async(folder.path("c"), what, options).wait();
          else
            nn::save_checkpoint(folder.path("c"), what, options);
        });
        CHECK(said.find("rank " + std::to_string(rank) + ": ") != std::string::npos);
        CHECK(said.find("No space left") != std::string::npos);
        // The ranks go on together.
        int64_t sum = 1;
        world.communicator().all_reduce(&sum, 1, DType::i64);
        CHECK(sum == world.size());
      });
      CHECK(test::contents(folder, "c") == before);
      CHECK(names(folder) == std::vector<std::string>{"c"});
    }
}

TEST_CASE("ranks that open or write different checkpoints, as on disks of their own, hear of it together") {
  TemporaryFolder folder;
  Tensor one = full({3, 5}, 1), two = full({3, 5}, 2);
  for (const char* name : {"a", "same"}) nn::save_checkpoint(folder.path(name), content(one, 1));
  nn::save_checkpoint(folder.path("b"), content(two, 2));
  nn::save_safetensors(folder.path("a.safetensors"), {{"x", one}});
  nn::save_safetensors(folder.path("b.safetensors"), {{"x", one}, {"y", two}});
  test::on_ranks({2, 3}, [&](dist::World& world) {
    auto of = [&](const char* first, const char* last) {
      return folder.path(world.rank() + 1 == world.size() ? last : first);
    };
    std::string who = "rank " + std::to_string(world.size() - 1);
    test::check_throws<FileError>([&] { nn::Checkpoint file(of("a", "b")); }, {who.c_str(), "the same"});
    test::check_throws<FileError>([&] { nn::Checkpoint file(of("a.safetensors", "b.safetensors")); },
                                  {who.c_str(), "the same"});
    test::check_throws<FileError>([&] { nn::Checkpoint file(of("a", "a.safetensors")); }, {who.c_str(), "the same"});
    CHECK(nn::Checkpoint(of("a", "same")).integer("step") == 1);
    test::check_throws<ValueError>([&] { nn::save_checkpoint(of("c", "d"), content(one, 1)); },
                                   {who.c_str(), "another folder"});
  });
  CHECK(!nn::detail::exists(folder.path("c")));
}

TEST_CASE("a rank without memory for what it converts ends a load on all, and no model has changed") {
  TemporaryFolder folder;
  NoGrad off;
  nn::save_safetensors(folder.path("f32"), {{"a", full({50}, 1)}, {"b", full({90, 90}, 1)}});
  test::on_ranks({2, 3}, [&](dist::World& world) {
    Tensor a = zeros({50}, {.dtype = DType::f64}), b = zeros({90, 90}, {.dtype = DType::f64});
    nn::Checkpoint file(folder.path("f32"));
    if (world.rank() == 1) set_memory_limit(memory_stats().active + 10000);  // for a's elements, not for b's
    std::string said = test::message_of<OutOfMemoryError>([&] { file.load({{"a", a}, {"b", b}}); });
    set_memory_limit(0);
    CHECK(said.find("rank 1") != std::string::npos);
    CHECK(item<double>(sum(a)) == 0);
    file.load({{"a", a}, {"b", b}});
    CHECK(item<double>(sum(a)) == 50);
    CHECK(item<double>(sum(b)) == 8100);
  });
}

TEST_CASE("folders of other things, and files, are not replaced") {
  TemporaryFolder folder;
  folder.write("mine/thesis.tex", "\\begin");
  folder.write("file", "text");
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("mine"), {}), FileError);
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("file"), {}), FileError);
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("no/parent"), {}), FileError);
  CHECK(folder.read("mine/thesis.tex") == "\\begin");
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("c"), {.groups = {{"../up", {}}}}), ValueError);
  CHECK_THROWS_AS(nn::save_checkpoint(folder.path("c"), {.groups = {{"a", {}}, {"a", {}}}}), ValueError);
}
