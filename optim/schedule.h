// Learning-rate schedules: functions of the step, put together from parts.
#pragma once
#include <cstdint>
#include <functional>

namespace cleave::optim {

/// A factor for the learning rate by step, from 0: `opt.set_lr_factor(schedule(step))`. Before its start a schedule is
/// asked nothing; after `steps()` it keeps its last value.
class Schedule {
 public:
  using Function = std::function<double(int64_t step)>;
  /// `steps`: after how many it has ended; -1: never.
  /// Throws ValueError for an empty function.
  Schedule(Function factor, int64_t steps = -1);
  /// Throws ValueError for a negative step.
  double operator()(int64_t step) const;
  int64_t steps() const { return steps_; }
  /// This one, and from its end on `next`, counted from there. Throws ValueError if this one never ends.
  Schedule then(const Schedule& next) const;
  friend Schedule operator*(const Schedule& a, const Schedule& b);

 private:
  Function factor_;
  int64_t steps_;
};

Schedule constant(double factor = 1.0);
/// From `from` to `to` in a line: from + (to - from) * step / steps.
Schedule linear(double from, double to, int64_t steps);
/// (step + 1) / steps, so that the first step already moves: 1 is reached at the last of them.
Schedule warmup(int64_t steps);
/// to + (1 - to) * (1 + cos(pi * step / steps)) / 2: from 1 to `to` (Loshchilov and Hutter 2017).
Schedule cosine(int64_t steps, double to = 0.0);

}  // namespace cleave::optim
