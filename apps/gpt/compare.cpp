#include "gpt/compare.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/host.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include "gpt/trainer.h"

namespace gpt {

using cleave::DType, cleave::Tensor;

namespace {

bool is_exact(const TrainOptions& o) { return o.step.dtype == DType::f64; }

/// Half the distance between neighbouring numbers.
double unit(DType t) {
  return t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : t == DType::f32 ? 0x1p-24 : 0x1p-53;
}

/// The largest relative differences that rounding makes.
struct Tolerance {
  double loss, norm, gradient, parameter;
};
// From equal weights. On its way an entry of a gradient is rounded a few times in each op, so that entries differ by
// some units of the coarsest dtype (9 with AdamW, 17 with Lion; PyTorch's in bf16 are as far from f64's), the norm,
// over which that averages out, by less than one, the mean over all tokens by a small part of one. In f32 what differs
// is the order of sums that are as long as a row. Updated by the same gradients, parameters differ by their own last
// rounding.
Tolerance tolerance_of(const StepOptions& o) {
  if (o.dtype == DType::f64) return {1e-10, 1e-10, 1e-10, 1e-10};
  double u = unit(o.autocast.value_or(o.dtype));
  for (DType sums : {o.gradients, o.reduce})
    if (cleave::is_half(o.dtype)) u = std::max(u, unit(sums));
  double parameter = 2 * unit(o.dtype);
  return u > unit(DType::f32) ? Tolerance{u / 4, 2 * u, 32 * u, parameter}
                              : Tolerance{16 * u, 16 * u, 256 * u, parameter};
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

// The gradients of one device in the place of the split run's.
void hand_over(const Trainer& single, Trainer& split) {
  cleave::NoGrad off;
  auto from = single.model().named_parameters(), to = split.model().named_parameters();
  for (size_t i = 0; i < to.size(); ++i) {
    Tensor g = to[i].second.grad();
    if (g.defined()) cleave::copy_(g, cleave::dist::distribute(from[i].second.grad(), g.layout()));
  }
}

/// Follows one run: prints, remembers the worst, throws at the first number out of tolerance.
class Comparison {
 public:
  Comparison(bool print, const Tolerance& tolerance) : print_(print), tolerance_(tolerance) {}

  void loss(int64_t step, double split, double single) { number(step, "loss", split, single, tolerance_.loss); }
  void norm(int64_t step, double split, double single) {
    number(step, "gradient norm", split, single, tolerance_.norm);
  }
  void same_norm(int64_t step, double split, double single) {
    number(step, "norm of the same gradients", split, single, kSameNorm);
  }
  void gradients(int64_t step, const std::vector<Pair>& kind) { tensors(step, "gradient", kind, tolerance_.gradient); }
  /// Weights start bit-equal: their random numbers go by global index.
  void parameters(int64_t step, const std::vector<Pair>& kind) {
    tensors(step, "parameter", kind, step == 0 ? 0 : tolerance_.parameter);
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
  void tensors(int64_t step, const char* what, const std::vector<Pair>& kind, double allowed) {
    Deviation d = deviation(kind, allowed);
    note(d.largest, fmt::format("{} of {}", what, d.where));
    if (!d.first_bad.empty())
      throw cleave::Error(
          fmt::format("step {}: the {} of {} differs from one device; the largest relative difference is "
                      "{:.3g}, in {}; allowed is {:.3g}",
                      step, what, d.first_bad, d.largest, d.where, allowed));
  }
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
  // Of f64 sums over the same numbers.
  static constexpr double kSameNorm = 1e-10;
  bool print_;
  Tolerance tolerance_;
  double worst_ = 0;
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
  Comparison comparison(world.rank() == 0, tolerance_of(o.step));
  comparison.parameters(0, pairs(split, single, Kind::parameter));
  comparison.end_step(0, o.steps, 0);
  for (int64_t step = 1; step <= o.steps; ++step) {
    cleave::dist::check_interrupt();
    Batch part = *blocks.next(), batch = *whole.next();
    double loss = cleave::item<double>(split.gradients(part, step));
    comparison.loss(step, loss, cleave::item<double>(single.gradients(batch, step)));
    split.unscale();
    single.unscale();
    double norm = split.gradient_norm(), single_norm = single.gradient_norm();
    bool overflow = split.scaler() && !std::isfinite(norm) && !std::isfinite(single_norm);
    if (!overflow) {
      comparison.norm(step, norm, single_norm);
      comparison.gradients(step, pairs(split, single, Kind::gradient));
      if (!is_exact(o)) {
        hand_over(single, split);
        norm = split.gradient_norm();
        comparison.same_norm(step, norm, single_norm);
      }
    }
    split.update(step, norm);
    single.update(step, single_norm);
    comparison.parameters(step, pairs(split, single, Kind::parameter));
    comparison.end_step(step, o.steps, loss);
  }
  comparison.end();
}

}  // namespace gpt
