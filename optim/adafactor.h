// Adafactor: second moments of matrices as a row and a column.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct AdafactorOptions {
  double lr = 1e-2;             ///< with relative_step: the most that rho may be
  bool relative_step = true;    ///< rho = min(lr, 1 / sqrt(t)), else rho = lr
  bool scale_parameter = true;  ///< the rate is rho * max(eps2, RMS(w)), else rho
  double beta2_decay = -0.8;    ///< 1 - b2_t = t^beta2_decay
  double eps1 = 1e-30;          ///< added to squared gradients
  double eps2 = 1e-3;           ///< the least scale of a parameter
  double clip = 1.0;            ///< the most that RMS(u) may be
  double beta1 = 0;             ///< momentum of the update; 0: none, and no state for it
  double weight_decay = 0;      ///< decoupled: w *= 1 - lr * weight_decay first
};

/// Shazeer and Stern 2018. For parameters of at least two dims (leading ones are a batch of matrices): R = b2 R +
/// (1-b2) mean over columns of (g^2 + eps1), C likewise over rows, v = R C / mean(R); of others v = b2 v + (1-b2) (g^2
/// + eps1). u = g / sqrt(v); u /= max(1, RMS(u) / clip); with momentum m = b1 m + (1-b1) u in its place; w -= rate * u.
/// The factors of `lr` (schedules) scale the rate. Means and RMS are of the global tensor under every layout: two
/// all-reduces a step, of all parameters together, for each set of axes that splits some. State: row_var [..., m, 1]
/// and col_var
/// [..., 1, n], or variance; exp_avg with momentum, and `master` for halves.
class Adafactor : public GroupedOptimizer<AdafactorOptions> {
 public:
  explicit Adafactor(const std::vector<nn::Parameter>& parameters, const AdafactorOptions& options = {});
  explicit Adafactor(const std::vector<Tensor>& tensors, const AdafactorOptions& options = {});
  /// All throw ValueError for an option out of its range.
  explicit Adafactor(std::vector<Group<AdafactorOptions>> groups);

 private:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  bool together() const override { return true; }
  uint32_t summed_dims(const std::string& name, const Shape& parameter) const override;
  struct Sums;
  Tensor direction(const Update& update, const Sums& sums);
  void apply(const Update& update, const Tensor& direction, const Sums& sums);
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
