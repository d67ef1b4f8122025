#include "gpt/report.h"

#include <cleave/core/error.h>
#include <cleave/core/text.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "gpt/chart.h"

namespace gpt {

namespace {

constexpr int kColors = 8;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #fff; --ink: #1c2024; --faint: #626a73; --grid: #e4e7ea; --warn: #c4001a;
  --c0: #1f6feb; --c1: #d9580d; --c2: #188038; --c3: #8a3ffc; --c4: #b8860b; --c5: #00838f; --c6: #c2185b; --c7: #5d4037; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e6e8ea; --faint: #99a2ab; --grid: #2b3036;
  --warn: #ff6b6b; --c0: #6cb0ff; --c1: #ff9a52; --c2: #5fd07f; --c3: #c49bff; --c4: #e8c04a; --c5: #4fd0dc; --c6: #ff7fb0;
  --c7: #c8a698; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 1360px; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { color: var(--faint); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1.5rem;
  margin-top: 1.5rem; }
figure { margin: 0; min-width: 0; position: relative; }
.cursor { stroke: var(--faint); stroke-dasharray: 3 3; visibility: hidden; }
.pointed .cursor { visibility: visible; }
.box { display: none; position: absolute; z-index: 1; pointer-events: none; padding: .3rem .6rem; font-size: 13px;
  white-space: nowrap; background: var(--page); border: 1px solid var(--grid); border-radius: 4px;
  font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px #0003; }
.pointed .box { display: block; }
.box i { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .5em; }
figcaption { font-weight: 600; }
figcaption span { font-weight: 400; font-size: 13px; color: var(--faint); margin-left: .4rem; }
figure .scroll > svg { width: 100%; min-width: 460px; height: auto; display: block; }
text { fill: var(--faint); font-size: 12px; font-family: inherit; }
.label { fill: var(--ink); }
.note { font-size: 14px; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--faint); }
path { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.band { stroke: none; opacity: .22; }
.gap { stroke: var(--warn); stroke-width: 1.2; }
.warning { stroke: var(--warn); stroke-width: 2.2; }
.dot { stroke: var(--page); stroke-width: 1.2; }
.d1 { stroke-dasharray: 6 3; } .d2 { stroke-dasharray: 2 3; } .d3 { stroke-dasharray: 8 3 2 3; }
path.d1, path.d2, path.d3 { stroke-width: 1.9; }
.any { fill: var(--faint); }
.legend { color: var(--faint); font-size: 13px; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding-left: 10%; }
.legend span { overflow-wrap: anywhere; }
.key { width: 24px; height: 8px; margin-right: .4rem; vertical-align: middle; }
)";

using Number = double RunStep::*;

// In which the greatest of some bytes has at most four digits before the point.
struct Unit {
  const char* name;
  double bytes;
};
Unit unit_for(double most) {
  constexpr Unit units[] = {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  size_t i = 0;
  while (i + 1 < std::size(units) && most >= 10 * units[i + 1].bytes) ++i;
  return units[i];
}

std::string color_rules() {
  std::string out;
  for (int c = 0; c < kColors; ++c)
    out += fmt::format(
        "path.c{0} {{ stroke: var(--c{0}); }} circle.c{0}, path.b{0} {{ fill: var(--c{0}); }} i.c{0} {{ background: "
        "var(--c{0}); }}\n",
        c);
  return out;
}

bool has(const std::vector<RunLog>& runs, Number number) {
  for (const RunLog& run : runs)
    for (const RunStep& s : run.steps)
      if (std::isfinite(s.*number)) return true;
  return false;
}

template <class F>
ChartSeries series(const RunLog& run, const std::string& name, size_t color, F&& value) {
  ChartSeries out{.name = name, .color = static_cast<int>(color % kColors), .dash = 0, .points = {}};
  for (const RunStep& s : run.steps) out.points.emplace_back(static_cast<double>(s.step), value(s));
  return out;
}

std::string outlier_text(const RunLog& run, const RunStep& s, const char* what, double value, double z) {
  if (!std::isfinite(value)) return fmt::format("{}: step {}, {} not finite", run.name, s.step, what);
  return fmt::format("{}: step {}, {} {:.4g}{}", run.name, s.step, what, value,
                     std::isfinite(z) ? fmt::format(", {:.1f} deviations above the mean", z) : "");
}

Chart loss_chart(const std::vector<RunLog>& runs) {
  Chart chart{.title = "Loss", .x_label = "step", .y_label = "nats per token", .series = {}};
  chart.logarithmic = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    ChartSeries line = series(runs[i], runs[i].name, i, [](const RunStep& s) { return s.loss; });
    for (const RunStep& s : runs[i].steps) {
      auto x = static_cast<double>(s.step);
      if (std::isfinite(s.held_out))
        line.dots.push_back(
            {x, s.held_out, fmt::format("{}: step {}, held out {:.4f}", runs[i].name, s.step, s.held_out)});
      if (s.skipped) line.gaps.push_back({x, 0, fmt::format("{}: step {} was left out", runs[i].name, s.step)});
      if (s.loss_outlier) line.warnings.push_back({x, s.loss, outlier_text(runs[i], s, "loss", s.loss, s.loss_z)});
    }
    chart.series.push_back(std::move(line));
  }
  return chart;
}

Chart norm_chart(const std::vector<RunLog>& runs) {
  Chart chart{.title = "Gradient norm, before clipping", .x_label = "step", .y_label = "L2", .series = {}};
  chart.logarithmic = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    ChartSeries line = series(runs[i], runs[i].name, i, [](const RunStep& s) { return s.grad_norm; });
    for (const RunStep& s : runs[i].steps)
      if (s.grad_norm_outlier)
        line.warnings.push_back({static_cast<double>(s.step), s.grad_norm,
                                 outlier_text(runs[i], s, "gradient norm", s.grad_norm, s.grad_norm_z)});
    chart.series.push_back(std::move(line));
  }
  return chart;
}

Chart number_chart(const std::vector<RunLog>& runs, Chart chart, Number number) {
  for (size_t i = 0; i < runs.size(); ++i)
    chart.series.push_back(series(runs[i], runs[i].name, i, [&](const RunStep& s) { return s.*number; }));
  return chart;
}

// Lines of one run share its color where there are several; of a single run each has a color of its own.
std::pair<size_t, int> look_of(bool single, size_t run, size_t line) {
  return single ? std::pair(line, static_cast<int>(line / kColors % 4)) : std::pair(run, static_cast<int>(line % 4));
}

Chart memory_chart(const std::vector<RunLog>& runs) {
  double most = 0;
  for (const RunLog& run : runs)
    for (const RunStep& s : run.steps)
      for (double bytes : s.peak_bytes) most = std::max(most, bytes);
  Unit unit = unit_for(most);
  Chart chart{.title = "Peak memory by rank, since the start", .x_label = "step", .y_label = unit.name, .series = {}};
  chart.from_zero = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    size_t ranks = 0;
    for (const RunStep& s : runs[i].steps) ranks = std::max(ranks, s.peak_bytes.size());
    for (size_t r = 0; r < ranks; ++r) {
      auto [color, dash] = look_of(runs.size() == 1, i, r);
      std::string name = runs.size() == 1 ? fmt::format("rank {}", r) : fmt::format("{}, rank {}", runs[i].name, r);
      chart.series.push_back(series(runs[i], name, color, [r = r, unit](const RunStep& s) {
        return r < s.peak_bytes.size() ? s.peak_bytes[r] / unit.bytes : kMissing;
      }));
      chart.series.back().dash = dash;
    }
  }
  return chart;
}

Chart bytes_chart(const std::vector<RunLog>& runs) {
  double most = 0;
  for (const RunLog& run : runs)
    for (const RunStep& s : run.steps)
      for (const auto& [axis, bytes] : s.comm_bytes) most = std::max(most, bytes);
  Unit unit = unit_for(most);
  Chart chart{.title = "What rank 0 hands to collectives, by mesh axis",
              .x_label = "step",
              .y_label = std::string(unit.name) + " per step",
              .series = {}};
  chart.from_zero = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::set<std::string> axes;
    for (const RunStep& s : runs[i].steps)
      for (const auto& [axis, bytes] : s.comm_bytes) axes.insert(axis);
    size_t line = 0;
    for (const std::string& axis : axes) {
      auto [color, dash] = look_of(runs.size() == 1, i, line++);
      std::string name = runs.size() == 1 ? axis : fmt::format("{}, {}", runs[i].name, axis);
      chart.series.push_back(series(runs[i], name, color, [&](const RunStep& s) {
        auto at = s.comm_bytes.find(axis);
        return at == s.comm_bytes.end() ? 0.0 : at->second / unit.bytes;
      }));
      chart.series.back().dash = dash;
    }
  }
  return chart;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return kMissing;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::string duration(double ms) {
  auto s = static_cast<int64_t>(ms / 1000);
  if (s < 60) return fmt::format("{:.1f} s", ms / 1000);
  return s < 3600 ? fmt::format("{} min {} s", s / 60, s % 60) : fmt::format("{} h {} min", s / 3600, s / 60 % 60);
}

std::string cell(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

std::string summary_row(const RunLog& run) {
  std::vector<double> rates;
  double held_out = kMissing, best = kMissing, peak = kMissing, time = kMissing;
  int64_t skipped = 0, outliers = 0;
  for (const RunStep& s : run.steps) {
    rates.push_back(s.tokens_per_s);
    if (std::isfinite(s.held_out)) {
      held_out = s.held_out;
      best = std::isfinite(best) ? std::min(best, s.held_out) : s.held_out;
    }
    for (double bytes : s.peak_bytes) peak = std::isfinite(peak) ? std::max(peak, bytes) : bytes;
    if (std::isfinite(s.ms)) time = std::isfinite(time) ? time + s.ms : s.ms;
    skipped += s.skipped;
    outliers += s.loss_outlier || s.grad_norm_outlier;
  }
  const RunStep& last = run.steps.back();
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
      "td>"
      "</tr>\n",
      escaped(run.name), last.step, std::isfinite(time) ? duration(time) : "-", cell(last.loss, "{:.4f}"),
      cell(held_out, "{:.4f}"), cell(best, "{:.4f}"), cell(median(rates), "{:.0f}"),
      std::isfinite(peak) ? cleave::bytes_text(static_cast<int64_t>(peak)) : "-", skipped, outliers);
}

}  // namespace

std::string report_html(const std::vector<RunLog>& runs) {
  std::string title = runs.size() == 1 ? "Run " + runs[0].name : fmt::format("{} runs", runs.size());
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th>steps</th><th>in steps</th><th>final "
      "loss</th>"
      "<th>held out</th><th>best held out</th><th>median tokens/s</th><th>peak of a rank</th>"
      "<th>skipped steps</th><th>outliers</th></tr></thead>\n<tbody>\n",
      escaped(title), kStyle, color_rules());
  for (const RunLog& run : runs) out += summary_row(run);
  out += "</tbody>\n</table></div>\n<div class=\"charts\">\n";
  out += to_svg(loss_chart(runs)) + to_svg(norm_chart(runs));
  Chart rate{.title = "Throughput", .x_label = "step", .y_label = "tokens/s", .series = {}, .from_zero = true};
  out += to_svg(number_chart(runs, rate, &RunStep::tokens_per_s));
  out += to_svg(memory_chart(runs)) + to_svg(bytes_chart(runs));
  Chart lr{.title = "Learning rate", .x_label = "step", .y_label = "rate", .series = {}, .from_zero = true};
  out += to_svg(number_chart(runs, lr, &RunStep::lr));
  if (has(runs, &RunStep::loss_scale)) {
    Chart scale{.title = "Loss scale", .x_label = "step", .y_label = "factor", .series = {}};
    scale.logarithmic = true;
    out += to_svg(number_chart(runs, scale, &RunStep::loss_scale));
  }
  return out + "</div>\n" + chart_script() + "</body>\n</html>\n";
}

void write_report(const std::vector<std::string>& logs, const std::string& path) {
  std::vector<RunLog> runs;
  std::map<std::string, int> names;
  for (const std::string& log : logs) {
    std::error_code error;
    if (std::filesystem::equivalent(log, path, error))
      throw cleave::ValueError(fmt::format("gpt report: {} is a log, and would be overwritten by the page", path));
    runs.push_back(read_run_log(log));
    ++names[runs.back().name];
  }
  for (size_t i = 0; i < runs.size(); ++i)
    if (names[runs[i].name] > 1) runs[i].name = logs[i];  // runs of several folders
  if (runs.empty()) throw cleave::ValueError("gpt report needs the log of a run: gpt report run.jsonl -o report.html");
  std::ofstream file(path, std::ios::binary);
  file << report_html(runs);
  file.close();
  if (!file) throw cleave::FileError(fmt::format("gpt report: {} cannot be written", path));
}

}  // namespace gpt
