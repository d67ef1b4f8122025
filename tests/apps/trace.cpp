// The trace of a run that communicates while it computes: what nests, what is named, what is left of a run that fails.
#include <cleave/nn/profile.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/reduce.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/temporary_folder.h"
#include "gpt/trainer.h"
#include "gpt/watch.h"

using namespace gpt;
using gpt::test::TemporaryFolder;
using namespace cleave;

namespace {

TrainOptions options_of(const char* mesh, const char* plan) {
  return {.model = completed({.vocab = 64, .layers = 2, .dim = 16, .heads = 2, .seq = 8}),
          .step = {.batch = 4},
          .steps = 4,
          .mesh = mesh,
          .plan = plan};
}

// Traces step 2 of a few.
nlohmann::json traced(const TrainOptions& o, int ranks, dist::Overlap overlap, std::set<std::string>& parameters) {
  TemporaryFolder folder;
  dist::run_ranks({.ranks = ranks, .overlap = overlap}, [&](dist::World& world) {
    Trainer trainer(o, place(world, o.model, o.mesh, o.plan));
    Tensor tokens = randint(0, 64, {4, 8}, {.seed = 3});
    nn::Profiler profiler({.bounds = false});
    for (int64_t step = 1; step <= 2; ++step) {
      if (step == 2) profiler.start("step 2");
      trainer.step(batch_of(tokens, tokens, trainer.token_layout()), step);
      profiler.stop();
    }
    profiler.write_chrome_trace(folder.path("trace.json"));
    if (world.rank() == 0)
      for (const auto& p : trainer.model().parameters()) parameters.insert(p.name());
  });
  return nlohmann::json::parse(folder.read("trace.json")).at("traceEvents");
}

struct Interval {
  double begin, end;
};

// By rank, in the order of the file.
std::map<int, std::vector<Interval>> spans(const nlohmann::json& events) {
  std::map<int, std::vector<Interval>> out;
  for (const auto& e : events)
    if (e.at("ph") == "X") {
      double begin = e.at("ts"), duration = e.at("dur");
      out[e.at("pid")].push_back({begin, begin + duration});
    }
  return out;
}

std::string of(const nlohmann::json& e) { return e.at("args").value("of", ""); }

}  // namespace

TEST_CASE("spans nest, flights end after they begin, and ranks stand on one clock") {
  std::set<std::string> parameters;
  auto events = traced(options_of("dp=2", "zero3"), 2, dist::Overlap::on, parameters);
  auto by_rank = spans(events);
  REQUIRE(by_rank.size() == 2);
  for (const auto& [rank, all] : by_rank) {
    CAPTURE(rank);
    std::vector<Interval> open;
    double last = all.front().begin;
    for (const Interval& s : all) {
      CHECK(s.end >= s.begin);
      CHECK(s.begin >= last);
      last = s.begin;
      while (!open.empty() && open.back().end <= s.begin) open.pop_back();
      if (!open.empty()) CHECK(s.end <= open.back().end + 1e-3);
      open.push_back(s);
    }
  }
  std::map<std::string, std::vector<double>> flights;
  std::map<int, std::vector<std::string>> collectives;  // by rank, in the order of their starts
  for (const auto& e : events)
    if (e.at("ph") == "b" || e.at("ph") == "e") {
      std::string id = e.at("pid").dump() + e.at("id2").dump(), name = e.at("name");
      auto& times = flights[id];
      CHECK(times.size() == (e.at("ph") == "b" ? 0 : 1));
      times.push_back(e.at("ts"));
      if (e.at("ph") == "b" && name.find(" over dp") != std::string::npos) collectives[e.at("pid")].push_back(id);
    }
  CHECK(flights.size() > 20);
  for (const auto& [id, times] : flights) {
    REQUIRE(times.size() == 2);
    CHECK(times[1] >= times[0]);
  }
  // No rank's part of a collective ends before the other has begun its own.
  const auto &a = collectives[0], &b = collectives[1];
  REQUIRE(a.size() == b.size());
  CHECK(a.size() > 10);
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(flights[a[i]][1] >= flights[b[i]][0]);
    CHECK(flights[b[i]][1] >= flights[a[i]][0]);
  }
}

TEST_CASE("gathers, reductions and their collectives are named by their parameters") {
  struct Case {
    const char *mesh, *plan;
    dist::Overlap overlap;
  };
  for (const Case& c : {Case{"dp=2", "zero3", dist::Overlap::on}, Case{"dp=2", "zero3", dist::Overlap::off},
                        Case{"dp=2", "zero2", dist::Overlap::on}, Case{"dp=2", "dp", dist::Overlap::off}}) {
    CAPTURE(c.plan);
    std::set<std::string> parameters, gathered, again, reduced;
    auto events = traced(options_of(c.mesh, c.plan), 2, c.overlap, parameters);
    int flights = 0, collectives = 0;
    for (const auto& e : events) {
      std::string name = e.at("name"), phase = e.at("args").value("phase", "");
      std::string subject = of(e), first = subject.substr(0, subject.find(' '));
      if (!subject.empty()) CHECK(parameters.count(first) == 1);
      if (name.starts_with("gather of a parameter: ")) gathered.insert(subject);
      if (name.starts_with("gather again: ")) again.insert(subject);
      if (name.starts_with("reduction of gradients: ")) reduced.insert(first);
      bool moves = name.find("all_gather over dp") != std::string::npos ||
                   name.find("reduce_scatter over dp") != std::string::npos;
      if (!moves || phase == "optimizer") continue;
      CHECK_FALSE(subject.empty());
      if (!name.starts_with("wait")) CHECK(e.at("args").at("bytes") > 0);
      flights += e.at("ph") == "b";
      collectives += e.at("ph") == "X";
    }
    bool third = std::string(c.plan) == "zero3";
    CHECK(gathered.empty() != third);
    CHECK(again.empty() != third);
    CHECK_FALSE(reduced.empty());
    if (third) CHECK(gathered.size() == parameters.size());
    if (third || std::string(c.plan) == "zero2") CHECK(collectives > 0);
    CHECK((flights > 0) == (c.overlap == dist::Overlap::on));
  }
}

TEST_CASE("a run that fails leaves a trace that can be read, and until then what was there") {
  TemporaryFolder folder;
  TrainOptions o = options_of("", "");
  o.watch.trace = folder.path("trace.json");
  auto run = [&](int64_t fails) {
    dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
      Watch watch(world, o);
      for (int64_t step = 1; step <= 4; ++step) {
        watch.begin(step);
        sum(ones({4}));
        if (step == fails) throw std::runtime_error("fails");
        watch.end();
        watch.over(step);
      }
      watch.report();
    });
  };
  auto pids = [&] {
    std::set<int> out;
    auto trace = nlohmann::json::parse(folder.read("trace.json"));
    for (const auto& e : trace.at("traceEvents"))
      if (e.at("ph") == "X") out.insert(e.at("pid").get<int>());
    return out;
  };
  CHECK_THROWS(run(1));  // before the first traced step: nothing to tell
  CHECK_FALSE(std::filesystem::exists(o.watch.trace));
  CHECK_THROWS(run(4));  // in the last one
  CHECK(pids() == std::set<int>{0});
  folder.write("trace.json", "old");
  CHECK_THROWS(run(2));
  CHECK(folder.read("trace.json") == "old");
  run(5);
  CHECK(pids() == std::set<int>{0, 1});
  CHECK_FALSE(std::filesystem::exists(o.watch.trace + ".tmp"));
}
