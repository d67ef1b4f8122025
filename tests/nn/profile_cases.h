// A small model in training under a profiler, for thread ranks and MPI ranks.
#pragma once
#include <cleave/cleave.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

namespace cleave::test {

constexpr int64_t kRows = 6, kIn = 5, kHidden = 8, kOut = 3;
constexpr int kSteps = 3;

struct ProfiledMlp : nn::Module<ProfiledMlp> {
  nn::Linear up{this, "up", kIn, kHidden}, down{this, "down", kHidden, kOut};
  Tensor forward(const Tensor& x) const { return down(gelu(up(x))); }
};

using Traffic = std::map<std::tuple<std::string, std::string>, std::pair<int64_t, int64_t>>;  // calls, bytes

inline Traffic traffic_of(const std::vector<dist::CommCount>& counts) {
  Traffic out;
  for (const auto& c : counts) out[{c.phase, std::string(to_string(c.kind)) + " over " + c.axis}] = {c.count, c.bytes};
  return out;
}

/// Losses and, last, all parameters after kSteps, under a profiler or none; and the traffic of the steps.
inline std::vector<std::vector<double>> train(dist::World& world, nn::Profiler* profiler, Traffic& traffic) {
  seed(3);
  dist::DeviceMesh mesh(world, {{"tp", world.size()}});
  auto model = nn::build<ProfiledMlp>({.deferred = true});
  nn::shard(model, mesh,
            {.parameter = {{"up.weight", "tp, -"}, {"up.bias", "tp"}, {"down.weight", "-, tp"}},
             .forward = {{"input", {"-, -"}}, {"output", {"-, -"}}}});
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  Tensor x = dist::replicate(randn({kRows, kIn}, {.seed = 1}), mesh);
  Tensor t = dist::replicate(randint(0, kOut, {kRows}, {.seed = 2}), mesh);
  dist::reset_comm_counts();
  std::vector<std::vector<double>> out;
  for (int step = 0; step < kSteps; ++step) {
    if (profiler) profiler->start("step " + std::to_string(step));
    Tensor loss = cross_entropy(model(x), t);
    loss.backward();
    optim::clip_grad_norm(model.parameters(), 1.0);
    opt.step();
    opt.zero_grad();
    out.push_back({item<double>(loss)});
    if (profiler) profiler->stop();
  }
  traffic = traffic_of(dist::comm_counts());
  for (const nn::Parameter& p : model.parameters()) out.push_back(to_vector<double>(p.tensor().detach()));
  return out;
}

inline const nn::ProfileRow* find_row(const std::vector<nn::ProfileRow>& rows, const std::string& phase,
                                      const std::string& name) {
  for (const auto& r : rows)
    if (r.phase == phase && r.name == name) return &r;
  return nullptr;
}

// Spans of a track: sorted by beginning, each lies in the one that is open.
inline void check_nesting(std::vector<std::pair<int64_t, int64_t>> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::vector<int64_t> open;
  int crossing = 0;
  for (auto [begin, end] : spans) {
    while (!open.empty() && open.back() <= begin) open.pop_back();
    crossing += end < begin || (!open.empty() && end > open.back());
    open.push_back(end);
  }
  CHECK(crossing == 0);
}

/// The trace of `train` on this many ranks; traffic as rank 0 counted it.
inline void check_trace(const std::string& path, int ranks, const Traffic& traffic) {
  std::ifstream file(path);
  nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> spans;
  std::map<int, std::set<std::string>> seen;
  Traffic traced;
  int64_t flaws = 0, levels = 0;
  auto nanoseconds = [](const nlohmann::json& us) { return std::llround(us.get<double>() * 1e3); };
  for (const auto& e : trace.at("traceEvents")) {
    int pid = e.at("pid").get<int>();
    std::string kind = e.at("ph").get<std::string>(), name = e.at("name").get<std::string>();
    flaws += pid < 0 || pid >= ranks || e.at("tid") != 0 || name.empty() || !e.at("args").is_object();
    if (kind == "M") continue;
    if (kind == "C") {
      ++levels;
      flaws += e.at("args").at("active bytes").get<int64_t>() <= 0;
      continue;
    }
    REQUIRE(kind == "X");
    int64_t begin = nanoseconds(e.at("ts"));
    spans[pid].emplace_back(begin, begin + nanoseconds(e.at("dur")));
    std::string category = e.at("cat").get<std::string>(), phase = e.at("args").at("phase").get<std::string>();
    seen[pid].insert(category + ": " + name);
    if (category == "op" || category == "backward" || category == "kernel")
      flaws += !e["args"].at("out").is_array() || !e["args"].at("in").is_array();
    if (category == "op" && name == "linear" && ranks > 1)
      flaws += e["args"]["in"].dump().find("@tp") == std::string::npos;
    if (category == "collective") {
      flaws += e["args"].at("axis") != "tp" || e["args"].at("dtype").get<std::string>().empty() ||
               !e["args"].at("label").is_string();
      auto& [count, bytes] = traced[{phase, name}];
      count += pid == 0;
      bytes += pid == 0 ? e["args"].at("bytes").get<int64_t>() : 0;
    }
  }
  CHECK(flaws == 0);
  CHECK(levels >= ranks);
  CHECK(spans.size() == static_cast<size_t>(ranks));
  if (ranks > 1) CHECK(traced == traffic);
  for (const auto& [pid, list] : spans) check_nesting(list);
  for (const auto& [pid, names] : seen)
    for (const char* name : {"interval: step 0", "module: model", "module: up", "op: linear", "kernel: linear",
                             "backward: backward of gelu", "phase: optimizer", "kernel: adam"})
      CHECK_MESSAGE(names.count(name) == 1, name, " of rank ", pid);
}

/// Every rank of `world` calls it, with the same path.
inline void check_profile(dist::World& world, const std::string& path) {
  Traffic traffic;
  auto plain = train(world, nullptr, traffic);
  nn::Profiler profiler({.bounds = false});
  auto begin = std::chrono::steady_clock::now();
  auto watched = train(world, &profiler, traffic);
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(watched == plain);

  CHECK(profiler.intervals() == kSteps);
  CHECK(profiler.seconds() <= wall);
  auto rows = profiler.rows();
  double sum = 0;
  for (const auto& r : rows) sum += r.seconds;
  CHECK(sum == doctest::Approx(profiler.seconds()).epsilon(1e-9));

  Traffic rowed;
  for (const auto& r : rows)
    if (r.name.find(" over ") != std::string::npos) rowed[{r.phase, r.name}] = {r.calls, static_cast<int64_t>(r.bytes)};
  if (world.size() > 1) CHECK(rowed == traffic);

  // Each product is 2 rows in out flops; the first layer's input needs no gradient. All dims that are split are even.
  double one = 2.0 * kSteps * kRows * kHidden / world.size();
  const auto *forward = find_row(rows, "forward", "linear"), *back = find_row(rows, "backward", "backward of linear");
  REQUIRE((forward && back));
  CHECK(forward->flops == one * (kIn + kOut));
  CHECK(back->flops == one * (kIn + 2 * kOut));
  CHECK(forward->calls == 2 * kSteps);
  for (const char* name : {"adam", "grad_norm"}) CHECK_MESSAGE(find_row(rows, "optimizer", name), name);
  CHECK(find_row(rows, "forward", "other"));
  CHECK(profiler.table().find("backward of linear") != std::string::npos);

  profiler.write_chrome_trace(path);
  if (world.rank() == 0) check_trace(path, world.size(), traffic);
}

}  // namespace cleave::test
