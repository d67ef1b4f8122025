#include <cleave/nn/memory_plan.h>

#include <cleave/core/error.h>
#include <cleave/core/text.h>
#include <cleave/nn/internal/memory_log.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace cleave::nn {
namespace {

constexpr int64_t kLeastShown = (1 << 20) / 200;  // less would be written as 0.00

std::string mebibytes(int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20)); }

// "blocks.12.mlp" -> "blocks.*.mlp".
std::string pattern_of(const std::string& path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find('.', at), path.size());
    std::string part = path.substr(at, end - at);
    bool number = !part.empty();
    for (char c : part) number = number && std::isdigit(static_cast<unsigned char>(c)) != 0;
    out += (at ? "." : "") + (number ? "*" : part);
    at = end + 1;
  }
  return out;
}

struct Line {
  MemoryRow row;
  int64_t count = 0;
};

std::vector<Line> merged(const std::vector<MemoryRow>& rows, MemoryKind kind) {
  std::vector<Line> out;
  for (const MemoryRow& r : rows) {
    if (r.kind != kind) continue;
    std::string name = kind == MemoryKind::saved ? pattern_of(r.name) : r.name;
    auto same = [&](const Line& l) { return l.row.name == name; };
    auto line = std::find_if(out.begin(), out.end(), same);
    if (line == out.end()) line = out.insert(out.end(), {{.kind = kind, .name = name}, 0});
    line->row.at_peak += r.at_peak;
    line->row.largest += r.largest;
    ++line->count;
  }
  return out;
}

}  // namespace

std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view names[] = {"parameters",    "gradients",         "optimizer state", "saved tensors",
                                        "communication", "checkpoint copies", "working memory"};
  return names[static_cast<size_t>(kind)];
}

std::string MemoryPlan::table() const {
  std::string out = fmt::format("{:<44}{:>16}{:>16}\n", "MiB", "at the peak", "largest");
  auto line = [&](const std::string& name, const MemoryRow& row) {
    out += fmt::format("{:<44}{:>16}{:>16}\n", name, mebibytes(row.at_peak), mebibytes(row.largest));
  };
  for (const MemoryRow& k : kinds) {
    if (k.kind == MemoryKind::checkpoint && k.largest == 0) continue;
    line(std::string(to_string(k.kind)), k);
    for (const Line& l : merged(rows, k.kind))
      if (l.row.largest >= kLeastShown)
        line(fmt::format("  {}{}", l.row.name, l.count > 1 ? fmt::format("  ({} of them)", l.count) : ""), l.row);
  }
  return out + fmt::format("{:<44}{:>16}\nreached in {}\n", "peak", mebibytes(peak), where);
}

std::string MemoryPlan::summary() const {
  std::string out = fmt::format("peak {} (in {}):", bytes_text(peak), where);
  for (const MemoryRow& k : kinds)
    if (k.kind != MemoryKind::checkpoint || k.largest > 0)
      out += fmt::format("{} {} {}", &k == kinds.data() ? "" : ",", to_string(k.kind), bytes_text(k.at_peak));
  return out;
}

struct MemoryRecorder::State {
  explicit State(Device device) : log(device) {}
  detail::MemoryLog log;
  bool running = true;
};

MemoryRecorder::MemoryRecorder(Device device) : state_(std::make_unique<State>(device)) {
  if (Observer::current() || AllocationObserver::current())
    throw ValueError("[memory recorder] this rank is being observed already; stop() what runs first");
  Observer::set(&state_->log);
  AllocationObserver::set(&state_->log);
}

MemoryRecorder::~MemoryRecorder() {
  if (!state_->running) return;
  Observer::set(nullptr);
  AllocationObserver::set(nullptr);
}

void MemoryRecorder::step() { state_->log.step(); }

MemoryPlan MemoryRecorder::stop() {
  if (std::exchange(state_->running, false)) {
    Observer::set(nullptr);
    AllocationObserver::set(nullptr);
  }
  return state_->log.plan();
}

}  // namespace cleave::nn
