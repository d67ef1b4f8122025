#include "gpt/fit.h"

#include <cleave/core/error.h>
#include <cleave/core/text.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace gpt {

using cleave::bytes_text;

namespace {

struct Change {
  std::string option, value;  // as on the command line
  std::function<void(TrainOptions&)> make;
};

std::vector<std::string> further_stages(const std::string& plan) {
  static const std::vector<std::vector<std::string>> ladders{
      {"dp", "zero1", "zero2", "zero3"}, {"dp_tp", "zero1_tp", "zero2_tp", "zero3_tp"}, {"dp_tp_sp", "zero3_tp_sp"}};
  for (const auto& ladder : ladders)
    if (auto at = std::find(ladder.begin(), ladder.end(), plan); at != ladder.end()) return {at + 1, ladder.end()};
  return {};
}

// From what costs nothing but code to what costs time or digits.
std::vector<Change> changes(const TrainOptions& o) {
  std::vector<Change> out;
  if (o.step.loss_chunk == 0)
    out.push_back({"--loss-chunk", "1024", [](TrainOptions& t) { t.step.loss_chunk = 1024; }});
  for (const std::string& plan : further_stages(o.plan))
    out.push_back({"--plan", plan, [plan](TrainOptions& t) { t.plan = plan; }});
  out.push_back({"--recompute", "all", [](TrainOptions& t) { t.step.recompute = {"all"}; }});
  for (int64_t parts = 2 * o.step.accumulate; parts <= o.step.batch; parts *= 2)
    out.push_back({"--accumulate", std::to_string(parts), [parts](TrainOptions& t) { t.step.accumulate = parts; }});
  if (o.step.dtype == cleave::DType::f32 && !o.step.autocast)
    out.push_back({"--dtype", "bf16", [](TrainOptions& t) { t.step.dtype = cleave::DType::bf16; }});
  return out;
}

}  // namespace

std::string fit_text(const TrainOptions& options, int ranks, const MemoryCase& c, int64_t peak, int64_t limit) {
  if (peak <= limit)
    return fmt::format("\nit fits in {}, of which {} are left\n", bytes_text(limit), bytes_text(limit - peak));
  std::string out = fmt::format("\nit does not fit in {}: {} too much\n", bytes_text(limit), bytes_text(peak - limit));
  TrainOptions best = options;
  std::vector<std::pair<std::string, std::string>> made;
  for (const Change& change : changes(options)) {
    TrainOptions tried = best;
    change.make(tried);
    int64_t now = planned_memory(tried, ranks, 0, c).peak;
    if (now >= peak) continue;
    peak = now;
    best = tried;
    out += fmt::format("  {} {:<26} {:>12}\n", made.empty() ? "with    " : "and with",
                       change.option + " " + change.value, bytes_text(now));
    std::erase_if(made, [&](const auto& m) { return m.first == change.option; });
    made.emplace_back(change.option, change.value);
    if (now > limit) continue;
    out += "it fits with";
    for (const auto& [option, value] : made) out += fmt::format(" {} {}", option, value);
    return out + "\n";
  }
  return out + "that is not enough: it takes more ranks along dp or tp, or a smaller model\n";
}

int64_t parse_bytes(const std::string& text) {
  static const std::map<std::string, double> units{{"", 1},         {"B", 1},       {"KB", 1e3},     {"MB", 1e6},
                                                   {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  char* end = nullptr;
  double n = std::strtod(text.c_str(), &end);
  std::string unit(end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  auto factor = units.find(unit);
  if (end == text.c_str() || factor == units.end() || !std::isfinite(n) || n <= 0 || n * factor->second > 9e18)
    throw cleave::ValueError(fmt::format("--limit is '{}'; write bytes like 80GB, 64GiB or 512MiB", text));
  return static_cast<int64_t>(n * factor->second);
}

}  // namespace gpt
