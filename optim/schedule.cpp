#include <cleave/core/error.h>
#include <cleave/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

namespace cleave::optim {

namespace {
int64_t positive(const char* name, int64_t steps) {
  if (steps < 1)
    throw ValueError("[" + std::string(name) + "] it takes " + std::to_string(steps) +
                     " steps; there must be at least one");
  return steps;
}
double part(int64_t step, int64_t steps) { return static_cast<double>(step) / static_cast<double>(steps); }
}  // namespace

Schedule::Schedule(Function factor, int64_t steps) : factor_(std::move(factor)), steps_(steps) {
  if (!factor_) throw ValueError("[schedule] the function is empty; give one from a step to a factor");
}

double Schedule::operator()(int64_t step) const {
  if (step < 0) throw ValueError("[schedule] step " + std::to_string(step) + " is before the start");
  return factor_(steps_ < 0 ? step : std::min(step, steps_));
}

Schedule Schedule::then(const Schedule& next) const {
  if (steps_ < 0) throw ValueError("[schedule] nothing can follow a schedule that never ends");
  Schedule first = *this;
  return Schedule([first, next](int64_t step) { return step < first.steps_ ? first(step) : next(step - first.steps_); },
                  next.steps_ < 0 ? -1 : steps_ + next.steps_);
}

Schedule operator*(const Schedule& a, const Schedule& b) {
  return Schedule([a, b](int64_t step) { return a(step) * b(step); },
                  a.steps_ < 0 || b.steps_ < 0 ? -1 : std::max(a.steps_, b.steps_));
}

Schedule constant(double factor) {
  return Schedule([factor](int64_t) { return factor; });
}
Schedule linear(double from, double to, int64_t steps) {
  positive("linear", steps);
  return Schedule([=](int64_t step) { return from + (to - from) * part(step, steps); }, steps);
}
Schedule warmup(int64_t steps) {
  positive("warmup", steps);
  return Schedule([=](int64_t step) { return std::min(1.0, part(step + 1, steps)); }, steps);
}
Schedule cosine(int64_t steps, double to) {
  positive("cosine", steps);
  return Schedule(
      [=](int64_t step) { return to + (1 - to) * (1 + std::cos(std::numbers::pi * part(step, steps))) / 2; }, steps);
}

}  // namespace cleave::optim
