#include "gpt/watch.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

namespace gpt {

namespace {

constexpr int64_t kWarm = 3;  // the first step whose code and buffers are all there
constexpr int64_t kTraced = 3;

void require_trace_file(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) throw cleave::FileError(fmt::format("--trace: {} cannot be written", path));
}

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
  if (world.rank() == 0 && !o_.trace.empty()) require_trace_file(o_.trace);
  if (!o_.trace.empty() || o_.profile) profiler_.emplace(cleave::nn::ProfilerOptions{.bounds = o_.profile});
}

void Watch::begin(int64_t step, const char* where, bool saving) {
  bool traced = traced_.has(step) || (saving && traced_.first > 0 && step > traced_.last);
  if (traced || profiled_.has(step)) profiler_->start(fmt::format("{}step {}", where, step), traced);
}

void Watch::end() {
  if (profiler_) profiler_->stop();
}

void Watch::report() const {
  if (!profiler_) return;
  if (!o_.trace.empty()) profiler_->write_chrome_trace(o_.trace);
  if (world_.rank() != 0) return;
  if (o_.profile) fmt::print("\nsteps {} to {} of rank 0\n{}", profiled_.first, profiled_.last, profiler_->table());
  if (!o_.trace.empty()) fmt::print("wrote the trace of steps {} to {}: {}\n", traced_.first, traced_.last, o_.trace);
}

}  // namespace gpt
