#include <cleave/dist/communicator.h>
#include <cleave/dist/cost_model.h>
#include <cleave/dist/internal/counters.h>
#include <cleave/dist/last_collective.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace cleave::dist {
namespace {

struct Traffic {
  const char* phase = "forward";
  std::vector<CommCount> counts;
  bool recording = false, left_out = false;
  std::vector<CommEvent> events;
};
thread_local Traffic traffic;

// Copies: texts of the caller, and names of groups, may be gone when somebody asks.
struct LastCollective {
  CollectiveKind kind = CollectiveKind::barrier;
  char axis[32] = {}, label[48] = {};
};
thread_local LastCollective last;

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  size_t n = std::min(from.size(), N - 1);
  std::copy_n(from.begin(), n, to);
  to[n] = 0;
}

int order(const std::string& phase) {
  return phase == "forward" ? 0 : phase == "backward" ? 1 : phase == "optimizer" ? 2 : 3;
}

// A program has a handful of (phase, axis, kind, dtype), so a scan is as fast as a table.
CommCount& entry(const char* phase, const std::string& axis, CollectiveKind kind, DType dtype) {
  for (CommCount& c : traffic.counts)
    if (c.kind == kind && c.dtype == dtype && c.axis == axis && c.phase == phase) return c;
  return traffic.counts.emplace_back(CommCount{phase, axis, kind, dtype});
}

}  // namespace

detail::Uncounted::Uncounted() : before_(std::exchange(traffic.left_out, true)) {}
detail::Uncounted::~Uncounted() { traffic.left_out = before_; }

bool detail::count_collective(const Collective& call, const std::string& axis, int ranks, int64_t bytes,
                              int64_t whole) {
  if (traffic.left_out) return false;
  CommCount& c = entry(traffic.phase, axis, call.kind, call.dtype);
  c.bytes += bytes;
  c.count += 1;
  c.seconds += collective_seconds(call.kind, ranks, whole);
  if (traffic.recording) traffic.events.push_back({traffic.phase, axis, call.kind, bytes, call.dtype, call.label});
  return true;
}

void detail::note_collective(const Collective& call, const std::string& axis) {
  last.kind = call.kind;
  copy_text(last.axis, axis);
  copy_text(last.label, call.label);
}

std::string last_collective() {
  if (!*last.axis) return "no collective";
  bool named = *last.label && last.label != to_string(last.kind);
  return fmt::format("{}{} over {}", to_string(last.kind), named ? fmt::format(" '{}'", last.label) : "", last.axis);
}

std::vector<CommCount> comm_counts() {
  auto sorted = traffic.counts;
  auto key = [](const CommCount& c) { return std::tuple(order(c.phase), c.phase, c.axis, c.kind, c.dtype); };
  std::sort(sorted.begin(), sorted.end(), [&](const CommCount& a, const CommCount& b) { return key(a) < key(b); });
  return sorted;
}

void reset_comm_counts() { traffic.counts.clear(); }

void record_collectives(bool on) {
  traffic.recording = on;
  if (on) traffic.events.clear();
}

std::vector<CommEvent> recorded_collectives() { return traffic.events; }

const char* current_phase() { return traffic.phase; }

PhaseScope::PhaseScope(const char* phase)
    : before_(std::exchange(traffic.phase, phase)), span_(SpanKind::phase, phase) {}
PhaseScope::~PhaseScope() { traffic.phase = before_; }

}  // namespace cleave::dist
