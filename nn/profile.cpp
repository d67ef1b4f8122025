#include <cleave/nn/profile.h>

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/internal/profile_recorder.h>
#include <cleave/nn/internal/profile_trace.h>

#include <algorithm>

#include <fmt/format.h>

namespace cleave::nn {

Profiler::Profiler(const ProfilerOptions& options) : recorder_(std::make_unique<detail::ProfileRecorder>(options)) {}
Profiler::~Profiler() { recorder_->stop(); }

void Profiler::start(const std::string& name, bool events) { recorder_->start(name, events); }
void Profiler::stop() { recorder_->stop(); }
int64_t Profiler::intervals() const { return recorder_->intervals; }
double Profiler::seconds() const { return static_cast<double>(recorder_->nanoseconds) * 1e-9; }
const ProfileBounds& Profiler::bounds() const { return recorder_->bounds; }

std::vector<ProfileRow> Profiler::rows() const {
  std::vector<ProfileRow> out;
  for (const detail::RowSums& r : recorder_->rows)
    out.push_back({r.phase, r.name, r.calls, static_cast<double>(r.nanoseconds) * 1e-9, r.flops, r.bytes,
                   r.bound_seconds, r.bytes_seconds >= r.flops_seconds});
  std::stable_sort(out.begin(), out.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return out;
}

void Profiler::write_chrome_trace(const std::string& path) const {
  if (recorder_->running()) throw ValueError("[profiler] it is running; stop() before the trace is written");
  detail::write_chrome_trace(*recorder_, dist::World::current(), path);
}

namespace {

std::string giga(double per_second, const char* unit) { return fmt::format("{:.4g} {}", per_second * 1e-9, unit); }

std::string bounds_text(const ProfileBounds& b) {
  if (b.memory <= 0) return "";
  return fmt::format("bounds: products {:.4g} GF/s in f32, {:.4g} f64, {:.4g} bf16, {:.4g} f16; memory {}\n",
                     b.f32 * 1e-9, b.f64 * 1e-9, b.bf16 * 1e-9, b.f16 * 1e-9, giga(b.memory, "GB/s"));
}

// By what binds it: flops, or bytes.
std::string rate_text(const ProfileRow& r) {
  if (r.seconds <= 0 || (r.flops <= 0 && r.bytes <= 0)) return "";
  bool flops = r.bytes <= 0 || (r.flops > 0 && !r.by_memory);
  return flops ? giga(r.flops / r.seconds, "GF/s") : giga(r.bytes / r.seconds, "GB/s");
}

}  // namespace

std::string Profiler::table() const {
  constexpr const char* line = "{:<10} {:<42} {:>8} {:>11} {:>10} {:>8} {:>12} {:>9}\n";
  double whole = seconds(), n = static_cast<double>(std::max<int64_t>(1, intervals()));
  std::string out = fmt::format("{} intervals of {:.3f} ms on average\n{}", intervals(), whole / n * 1e3,
                                bounds_text(recorder_->bounds));
  out += fmt::format(line, "phase", "where", "calls", "total ms", "ms each", "share", "rate", "of bound");
  for (const ProfileRow& r : rows()) {
    std::string bound = r.bound_seconds > 0 && r.seconds > 0
                            ? fmt::format("{:.1f} %", 100 * r.bound_seconds / r.seconds)
                            : std::string();
    out += fmt::format(line, r.phase, r.name, r.calls ? std::to_string(r.calls) : "",
                       fmt::format("{:.3f}", r.seconds * 1e3), fmt::format("{:.3f}", r.seconds / n * 1e3),
                       fmt::format("{:.2f} %", whole > 0 ? 100 * r.seconds / whole : 0), rate_text(r), bound);
  }
  return out + fmt::format(line, "", "all", "", fmt::format("{:.3f}", whole * 1e3),
                           fmt::format("{:.3f}", whole / n * 1e3), "100.00 %", "", "");
}

}  // namespace cleave::nn
