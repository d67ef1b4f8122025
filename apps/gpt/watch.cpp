#include "gpt/watch.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "gpt/log.h"

namespace gpt {

namespace {

constexpr int64_t kWarm = 3;  // the first step whose code and buffers are all there
constexpr int64_t kTraced = 3;

}  // namespace

Steps traced_steps(const TrainOptions& o) {
  if (o.watch.trace.empty()) return {};
  if (o.watch.trace_first) return {o.watch.trace_first, std::min(o.watch.trace_last, o.steps)};
  int64_t last = std::min(o.steps, kWarm + kTraced - 1);
  return {std::max<int64_t>(1, std::min(kWarm, last)), last};
}

Steps profiled_steps(const TrainOptions& o) {
  if (!o.watch.profile) return {};
  return {o.steps < kWarm ? 1 : kWarm, o.steps};
}

Watch::Watch(cleave::dist::World& world, const TrainOptions& options)
    : world_(world), o_(options.watch), traced_(traced_steps(options)), profiled_(profiled_steps(options)) {
  if (world.rank() == 0 && !o_.trace.empty()) require_file("--trace", o_.trace);
  if (!o_.trace.empty() || o_.profile) profiler_.emplace(cleave::nn::ProfilerOptions{.bounds = o_.profile});
}

void Watch::begin(int64_t step, const char* where, bool saving) {
  bool traced = traced_.has(step) || (saving && !written_ && traced_.first > 0 && step > traced_.last);
  if (traced || profiled_.has(step)) profiler_->start(fmt::format("{}step {}", where, step), traced);
}

void Watch::end() {
  if (profiler_) profiler_->stop();
}

void Watch::write() {
  if (o_.trace.empty() || std::exchange(written_, true)) return;
  profiler_->write_chrome_trace(o_.trace);
}

void Watch::over(int64_t step, bool saving) {
  if (traced_.first > 0 && step >= traced_.last && !saving) write();
}

Watch::~Watch() {
  if (o_.trace.empty() || written_ || world_.rank() != 0 || std::uncaught_exceptions() == 0) return;
  profiler_->stop();
  if (profiler_->intervals() == 0) return;
  try {
    profiler_->write_chrome_trace(o_.trace, true);
    fmt::print("wrote the trace of rank 0 up to the failure: {}\n", o_.trace);
  } catch (const std::exception&) {}  // the failure itself is what counts
}

void Watch::report() {
  write();
  if (!profiler_ || world_.rank() != 0) return;
  if (o_.profile) fmt::print("\nsteps {} to {} of rank 0\n{}", profiled_.first, profiled_.last, profiler_->table());
  if (written_) fmt::print("wrote the trace of steps {} to {}: {}\n", traced_.first, traced_.last, o_.trace);
}

}  // namespace gpt
