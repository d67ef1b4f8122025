// The profiler: what it says of a run on one and more ranks, and what it does at its borders.
#include "nn/profile_cases.h"
#include "support/ranks.h"

#include <cleave/dist/mesh_state.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <unistd.h>

using namespace cleave;
using namespace cleave::test;
using namespace std::chrono_literals;

namespace {

struct TraceFile {
  std::string path =
      (std::filesystem::temp_directory_path() / ("trace." + std::to_string(getpid()) + ".json")).string();
  ~TraceFile() { std::filesystem::remove(path); }
  nlohmann::json events() const {
    std::ifstream file(path);
    return nlohmann::json::parse(file).at("traceEvents");
  }
};

int count(const nlohmann::json& events, const std::string& kind, const std::string& name) {
  int n = 0;
  for (const auto& e : events) n += e.at("ph") == kind && e.at("name") == name;
  return n;
}

}  // namespace

TEST_CASE("a run on 1, 2 and 4 thread ranks: same bits, times that add up, work and traffic as computed, one trace") {
  TraceFile file;
  for (int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) { check_profile(world, file.path); });
  }
}

TEST_CASE("attention, its backward, and an op that a program defines have their work, and time goes to where it was") {
  nn::Profiler profiler({.bounds = false});
  Tensor q = randn({2, 3, 8, 4}, {.seed = 1}).set_requires_grad();
  profiler.start();
  Tensor y = sum(scaled_dot_product_attention(q, q, q));
  y.backward();
  profiler.stop();
  auto rows = profiler.rows();
  const auto* forward = find_row(rows, "forward", "scaled_dot_product_attention");
  const auto* back = find_row(rows, "backward", "backward of scaled_dot_product_attention");
  REQUIRE((forward && back));
  CHECK(forward->flops == 2.0 * 2 * 3 * 8 * 8 * (4 + 4));  // q k^T and p v, for each pair of positions
  CHECK(back->flops == 2.5 * forward->flops);
  const auto* total = find_row(rows, "forward", "sum");
  REQUIRE(total);
  CHECK(total->bytes == 2 * 3 * 8 * 4 * 4);

  OpDef own{.name = "own",
            .infer =
                [](const InferCall& c, std::span<OutputType> out) {
                  out[0] = {c.dtype(0), c.shape(0)};
                },
            .layout = [](const RuleCall& c) { return pointwise_rule(c); },
            .kernel = {.cpu =
                           [](const KernelCall& c) {
                             detail::copy_view(Device::Cpu, *c.in[0], *c.out[0]);
                             std::this_thread::sleep_for(20ms);
                           }},
            .cost =
                [](std::span<const View* const>, std::span<const View* const>, const Attributes&) {
                  return Cost{7, 11};
                }};
  nn::Profiler times({.bounds = false});
  times.start();
  std::this_thread::sleep_for(30ms);
  apply(own, {}, q);
  { nn::ProfileScope scope("host"), inner("work"); }
  sum(q);
  {
    nn::ProfileScope scope("host");
    std::this_thread::sleep_for(10ms);
  }
  times.stop();
  rows = times.rows();
  REQUIRE((rows.size() == 3 && find_row(rows, "forward", "own")));
  CHECK(find_row(rows, "forward", "own")->flops == 7);
  CHECK(find_row(rows, "forward", "own")->bytes == 11);  // not those of the kernel that it calls
  CHECK(find_row(rows, "forward", "own")->seconds >= 0.02);
  CHECK(find_row(rows, "forward", "other")->seconds >= 0.04);
  CHECK(find_row(rows, "forward", "sum")->seconds <= times.seconds() - 0.06);
}

TEST_CASE("single events are kept up to a limit, the sums of the table without one") {
  TraceFile file;
  nn::Profiler profiler({.max_events = 10, .bounds = false});
  Tensor x = ones({4});
  profiler.start("all", true);
  for (int i = 0; i < 20; ++i) x = x + 1.0;
  profiler.stop();
  profiler.start("none", false);
  x = x + 1.0;
  profiler.stop();
  CHECK(find_row(profiler.rows(), "forward", "add")->calls == 21);
  profiler.write_chrome_trace(file.path);
  auto events = file.events();
  int spans = 0;
  for (const auto& e : events) spans += e.at("ph") == "X";
  CHECK(spans == 10);
  CHECK(count(events, "X", "all") == 1);
  CHECK(count(events, "X", "none") == 0);
  for (const auto& e : events)
    if (e.at("name") == "dropped") CHECK(e.at("args").at("events") == 1 + 2 * 20 - 10);
  CHECK(count(events, "M", "dropped") == 1);
}

TEST_CASE("a collective that was started is one call, its wait the same row, its flight an event of its own") {
  TraceFile file;
  dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    dist::Communicator& ranks = mesh.state()->communicator(1);
    nn::Profiler profiler({.bounds = false});
    dist::reset_comm_counts();
    profiler.start();
    std::vector<float> a(100, 1.0f), b(50, 1.0f);
    auto first = ranks.start({.kind = dist::CollectiveKind::all_reduce, .recv = a.data(), .count = 100, .label = "a"});
    auto second = ranks.start({.kind = dist::CollectiveKind::all_reduce, .recv = b.data(), .count = 50, .label = "b"});
    first->wait();
    second->wait();
    profiler.stop();
    CHECK(a[0] + b[0] == 4.0f);
    auto rows = profiler.rows();
    const auto* row = find_row(rows, "forward", "all_reduce over dp");
    REQUIRE(row);
    CHECK(row->calls == 2);
    CHECK(row->bytes == 600);
    profiler.write_chrome_trace(file.path);
    if (world.rank() != 0) return;
    auto events = file.events();
    CHECK(count(events, "b", "all_reduce over dp") == 4);
    CHECK(count(events, "e", "all_reduce over dp") == 4);
    CHECK(count(events, "X", "wait for all_reduce over dp") == 4);
  });
}

TEST_CASE("a profiler that was stopped inside a span, and an op that throws, leave no trace behind") {
  TraceFile file;
  Tensor x = ones({2, 3});
  {
    nn::Profiler profiler({.bounds = false});
    {
      nn::ProfileScope outer("outer");
      profiler.start();
      { nn::ProfileScope inner("inner \"quoted\""); }
      CHECK_THROWS_AS(matmul(x, x), ShapeError);
      profiler.stop();
      profiler.start("again");
    }
    x + x;
    profiler.stop();
    CHECK(Observer::current() == nullptr);
    CHECK(find_row(profiler.rows(), "forward", "add")->calls == 1);
    profiler.write_chrome_trace(file.path);
    CHECK(count(file.events(), "X", "inner \"quoted\"") == 1);
    CHECK(count(file.events(), "X", "outer") == 0);
    profiler.start();
  }
  CHECK(Observer::current() == nullptr);
  x + x;
}

TEST_CASE("what does not fit is an error") {
  nn::Profiler one({.bounds = false}), two({.bounds = false});
  one.start();
  CHECK(contains(message_of<ValueError>([&] { two.start(); }), {"[profiler]", "being observed already"}));
  CHECK(contains(message_of<ValueError>([&] { one.write_chrome_trace("x"); }), {"[profiler]", "stop()"}));
  one.stop();
  CHECK(contains(message_of<FileError>([&] { one.write_chrome_trace("/no/such/folder/x"); }),
                 {"[profiler]", "/no/such/folder/x"}));
  TraceFile file;
  std::string unfinished = file.path + ".tmp";
  std::filesystem::create_symlink("/dev/full", unfinished);
  CHECK(contains(message_of<FileError>([&] { one.write_chrome_trace(file.path); }), {"[profiler]", "disk full"}));
  CHECK(!std::filesystem::is_symlink(unfinished));
  CHECK(!std::filesystem::exists(file.path));
}

TEST_CASE("bounds are measured outside the allocator") {
  reset_peak_memory();
  int64_t before = memory_stats().peak;
  nn::Profiler profiler;
  CHECK(memory_stats().peak == before);
  CHECK(profiler.bounds().f32 > 1e8);
  CHECK(profiler.bounds().memory > 1e8);
  profiler.start();
  Tensor y = matmul(ones({64, 64}), ones({64, 64}));
  profiler.stop();
  CHECK(find_row(profiler.rows(), "forward", "matmul")->bound_seconds > 0);
}
