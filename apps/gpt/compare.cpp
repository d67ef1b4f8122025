#include "gpt/compare.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/host.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include "gpt/trainer.h"

namespace gpt {

using cleave::Tensor;

namespace {

constexpr double kTolerance64 = 1e-10, kTolerance32 = 2e-5, kTolerance16 = 5e-3;
// The norm of 16-bit gradients moves more: at single steps that of one device is as far from that of f32. A term that
// counts twice or not at all moves it further.
constexpr double kNormTolerance16 = 0.2;

double tolerance_of(cleave::DType t) {
  return t == cleave::DType::f64 ? kTolerance64 : t == cleave::DType::f32 ? kTolerance32 : kTolerance16;
}

double largest(const Tensor& x) { return numel(x) ? cleave::item<double>(cleave::amax(cleave::abs(x))) : 0; }

enum class Kind { gradient, parameter };

std::vector<Pair> pairs(const Trainer& split, const Trainer& single, Kind kind) {
  auto value = [&](const nn::Parameter& p) { return kind == Kind::gradient ? p.grad() : p.tensor().detach(); };
  auto a = split.model().named_parameters(), b = single.model().named_parameters();
  std::vector<Pair> out;
  for (size_t i = 0; i < a.size(); ++i) {
    Tensor left = value(a[i].second), right = value(b[i].second);
    if (left.defined() != right.defined())
      throw cleave::Error(fmt::format("compare: {} has a gradient in one run only", a[i].first));
    if (left.defined()) out.push_back({a[i].first, cleave::dist::full_tensor(left), right});
  }
  return out;
}

/// Follows one run: prints, remembers the worst, throws at the first number out of tolerance.
class Comparison {
 public:
  Comparison(bool print, cleave::DType dtype)
      : print_(print), f64_(dtype == cleave::DType::f64), tolerance_(tolerance_of(dtype)) {}

  void loss(int64_t step, double split, double single) { number(step, "loss", split, single, tolerance_); }
  void norm(int64_t step, double split, double single) {
    number(step, "gradient norm", split, single, tolerance_ == kTolerance16 ? kNormTolerance16 : tolerance_);
  }
  void tensors(int64_t step, const char* what, const std::vector<Pair>& kind) {
    // Weights start bit-equal: their random numbers go by global index.
    double allowed = step == 0 ? 0 : f64_ ? tolerance_ : std::numeric_limits<double>::infinity();
    Deviation d = deviation(kind, allowed);
    note(d.largest, fmt::format("{} of {}", what, d.where));
    if (!d.first_bad.empty())
      throw cleave::Error(
          fmt::format("step {}: the {} of {} differs from one device; the largest relative difference is "
                      "{:.3g}, in {}; allowed is {:.3g}",
                      step, what, d.first_bad, d.largest, d.where, allowed));
  }
  void end_step(int64_t step, int64_t steps, double loss) {
    if (print_) fmt::print("step {}/{}  loss {:.6f}  {}\n", step, steps, loss, line_);
    if (print_) std::fflush(stdout);
    line_.clear();
  }
  void end() const {
    if (print_) fmt::print("largest relative difference from one device: {:.3g} ({})\n", worst_, where_);
  }

 private:
  void number(int64_t step, const char* what, double split, double single, double allowed) {
    double d = relative(split, single);
    note(d, what);
    if (!(d <= allowed))
      throw cleave::Error(
          fmt::format("step {}: the {} is {:.17g} split and {:.17g} on one device, a relative difference "
                      "of {:.3g}; allowed is {:.3g}",
                      step, what, split, single, d, allowed));
  }
  void note(double d, const std::string& what) {
    line_ += fmt::format("{}{} {:.1e}", line_.empty() ? "differences: " : ", ", what, d);
    if (d < worst_) return;
    worst_ = d;
    where_ = what;
  }
  bool print_, f64_;
  double tolerance_, worst_ = 0;
  std::string line_, where_;
};

}  // namespace

double relative(double a, double b) {
  if (a == b) return 0;
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

Deviation deviation(const std::vector<Pair>& kind, double tolerance) {
  cleave::NoGrad off;
  double top = 0;
  for (const Pair& p : kind) top = std::max(top, largest(p.single));
  Deviation out;
  for (const Pair& p : kind) {
    double difference = largest(p.split - p.single), scale = std::max(largest(p.single), 1e-3 * top);
    double d = difference == 0 ? 0 : difference / scale;
    if (!(d <= out.largest) || out.where.empty()) {
      out.largest = d;
      out.where = p.name;
    }
    if (!(d <= tolerance) && out.first_bad.empty()) out.first_bad = p.name;
  }
  return out;
}

void compare_with_single(cleave::dist::World& world, const TrainOptions& o, const Placement& placement,
                         const Corpus& corpus) {
  Trainer split(o, placement), single(o, Placement{});
  nn::TokenLoader blocks = training_loader(corpus, o, split.token_layout()), whole = training_loader(corpus, o, {});
  Comparison comparison(world.rank() == 0, o.step.dtype);
  comparison.tensors(0, "parameter", pairs(split, single, Kind::parameter));
  comparison.end_step(0, o.steps, 0);
  for (int64_t step = 1; step <= o.steps; ++step) {
    cleave::dist::check_interrupt();
    Batch part = *blocks.next(), batch = *whole.next();
    double loss = cleave::item<double>(split.gradients(part, step));
    comparison.loss(step, loss, cleave::item<double>(single.gradients(batch, step)));
    comparison.tensors(step, "gradient", pairs(split, single, Kind::gradient));
    double norm = split.gradient_norm(), single_norm = single.gradient_norm();
    comparison.norm(step, norm, single_norm);
    split.update(step, norm);
    single.update(step, single_norm);
    comparison.tensors(step, "parameter", pairs(split, single, Kind::parameter));
    comparison.end_step(step, o.steps, loss);
  }
  comparison.end();
}

}  // namespace gpt
