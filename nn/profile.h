// Profiler: where the time of a run goes, as a table by op, and what happened when, as a trace.
//
//   nn::Profiler profiler;
//   for (int step = 1; step <= 5; ++step) {
//     profiler.start("step " + std::to_string(step));
//     train_one_step();
//     profiler.stop();
//   }
//   if (world.rank() == 0) std::fputs(profiler.table().c_str(), stdout);
//   profiler.write_chrome_trace("trace.json");  // all ranks, into one file: chrome://tracing or ui.perfetto.dev
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cleave/core/observer.h>

namespace cleave::nn {

namespace detail {
class ProfileRecorder;
}

struct ProfilerOptions {
  /// Single events kept on each rank for the trace, at about 50 bytes each; those after are dropped, and the trace
  /// says how many.
  int64_t max_events = 400'000;
  /// First measure what this rank reaches in large matrix products and in streaming memory (0.1 to 0.3 s).
  bool bounds = true;
};

/// One line of the table. Time is exclusive: what a collective or an op inside took stands in its own row.
struct ProfileRow {
  std::string phase;  ///< "forward" (also outside any phase), "backward", "optimizer"
  /// An op, "backward of" one, "all_reduce over tp", "redistribution" (its packing and copying), a kernel that ran in
  /// none of these, or "other": the host outside all.
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;          ///< by the records of the ops whose kernels ran
  double bytes = 0;          ///< by the same records, else what kernels read and write; of a collective its payload
  double bound_seconds = 0;  ///< what the kernels would take at the bounds; less than that: the data was in a cache
};

/// What this rank can reach.
struct ProfileBounds {
  double f32 = 0, f64 = 0, bf16 = 0, f16 = 0;  ///< flops per second
  double memory = 0;                           ///< bytes per second
};

/// Watches one rank between `start` and `stop`: ops, backward, kernels, collectives, modules, the allocator. Changes no
/// number. Nothing is recorded, and nothing costs time, while none runs. To be used on the rank that made it.
class Profiler {
 public:
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Begins an interval, which has this name in the trace. `events` false: only for the table. Throws ValueError if
  /// this rank is being observed already.
  void start(const std::string& name = "run", bool events = true);
  /// Ends it. Spans that are still open end here.
  void stop();

  int64_t intervals() const;
  /// Of all intervals.
  double seconds() const;
  /// The longest first; their seconds add up to `seconds()`.
  std::vector<ProfileRow> rows() const;
  const ProfileBounds& bounds() const;
  /// The rows as text, with shares, rates and shares of the bound.
  std::string table() const;

  /// One file with a process per rank: spans, with types and bytes, collectives in flight, and the allocator's level.
  /// Every rank of the world calls it after `stop`; rank 0 writes, and the ranks' clocks are brought to its own.
  /// Communicates. Throws ValueError while it runs, FileError on rank 0 if the file cannot be written.
  /// `alone`: this rank's events only, without communication, as after a failure.
  void write_chrome_trace(const std::string& path, bool alone = false) const;

 private:
  std::unique_ptr<detail::ProfileRecorder> recorder_;
};

/// A part of a program, under its own name in the trace; the name must outlive it.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name) : span_(SpanKind::scope, name) {}

 private:
  NamedSpan span_;
};

}  // namespace cleave::nn
