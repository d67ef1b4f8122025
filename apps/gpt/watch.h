// gpt train --trace and --profile: which steps are watched, and what is told of them.
#pragma once
#include <cleave/dist/launch.h>
#include <cleave/nn/profile.h>

#include <optional>

#include "gpt/options.h"

namespace gpt {

/// First and last of a run of steps, from 1.
struct Steps {
  int64_t first = 0, last = -1;
  bool has(int64_t step) const { return first <= step && step <= last; }
};
/// The steps of the trace: as asked for, else 3 to 5, or the last ones of a shorter run.
Steps traced_steps(const TrainOptions& options);
/// The steps of the profile: from the third, behind those that warm up; all of a run of two.
Steps profiled_steps(const TrainOptions& options);

/// Watches the steps of a run, if that was asked for.
class Watch {
 public:
  /// Throws FileError on rank 0 if the trace cannot be written.
  Watch(cleave::dist::World& world, const TrainOptions& options);
  /// After a failure, rank 0 writes what it saw of the trace.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// `where`: before the step's name, if this is not the step itself. `saving`: a save goes on, whose end a trace is to
  /// show too.
  void begin(int64_t step, const char* where = "", bool saving = false);
  void end();
  /// The step is over, with all behind it; `saving`: but for a save. Behind the last one of the trace it is written.
  /// Communicates.
  void over(int64_t step, bool saving = false);
  /// After the run: writes the trace if its last step was not made, prints rank 0's table. Communicates.
  void report();

 private:
  void write();
  cleave::dist::World& world_;
  const WatchOptions& o_;
  Steps traced_, profiled_;
  std::optional<cleave::nn::Profiler> profiler_;
  bool written_ = false;
};

}  // namespace gpt
