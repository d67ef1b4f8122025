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
    out.push_back(
        {r.phase, r.name, r.calls, static_cast<double>(r.nanoseconds) * 1e-9, r.flops, r.bytes, r.bound_seconds});
  std::stable_sort(out.begin(), out.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return out;
}

void Profiler::write_chrome_trace(const std::string& path, bool alone) const {
  if (recorder_->running()) throw ValueError("[profiler] it is running; stop() before the trace is written");
  detail::write_chrome_trace(*recorder_, alone ? nullptr : dist::World::current(), path);
}

namespace {

std::string giga(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.4g}", amount / seconds * 1e-9) : "";
}
std::string percent(double part, double whole) { return whole > 0 ? fmt::format("{:.2f} %", 100 * part / whole) : ""; }
std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string bounds_text(const ProfileBounds& b) {
  if (b.memory <= 0) return "";
  return fmt::format("bounds: products {:.4g} GF/s in f32, {:.4g} f64, {:.4g} bf16, {:.4g} f16; memory {:.4g} GB/s\n",
                     b.f32 * 1e-9, b.f64 * 1e-9, b.bf16 * 1e-9, b.f16 * 1e-9, b.memory * 1e-9);
}

}  // namespace

std::string Profiler::table() const {
  constexpr const char* line = "{:<10} {:<42} {:>8} {:>11} {:>10} {:>9} {:>8} {:>8} {:>9}\n";
  double whole = seconds(), n = static_cast<double>(std::max<int64_t>(1, intervals()));
  std::string out = fmt::format("{} intervals of {} ms on average\n{}", intervals(), milliseconds(whole / n),
                                bounds_text(recorder_->bounds));
  out += fmt::format(line, "phase", "where", "calls", "total ms", "ms each", "share", "GF/s", "GB/s", "of bound");
  for (const ProfileRow& r : rows())
    out += fmt::format(line, r.phase, r.name, r.calls ? std::to_string(r.calls) : "", milliseconds(r.seconds),
                       milliseconds(r.seconds / n), percent(r.seconds, whole), giga(r.flops, r.seconds),
                       giga(r.bytes, r.seconds), r.bound_seconds > 0 ? percent(r.bound_seconds, r.seconds) : "");
  return out + fmt::format(line, "", "all", "", milliseconds(whole), milliseconds(whole / n), percent(whole, whole), "",
                           "", "");
}

}  // namespace cleave::nn
