// LAMB: Adam with a step as long as the parameter, layer by layer.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct LAMBOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;      ///< part of the direction whose norm is taken
  bool bias_correction = true;  ///< of the moments
};

/// m and v as Adam's; r = (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + weight_decay * w; w -= lr * |w| / |r| * r, with
/// the factor 1 in place of |w| / |r| where one of the two is 0 (You et al. 2020, "Large Batch Optimization for Deep
/// Learning"; phi is the identity). Norms are of the global tensor under every layout: the norms of all parameters take
/// one all-reduce a step for each set of axes that splits some. State: exp_avg, exp_avg_sq, and `master` for halves.
class LAMB : public GroupedOptimizer<LAMBOptions> {
 public:
  explicit LAMB(const std::vector<nn::Parameter>& parameters, const LAMBOptions& options = {});
  explicit LAMB(const std::vector<Tensor>& tensors, const LAMBOptions& options = {});
  /// All throw ValueError for an option out of its range.
  explicit LAMB(std::vector<Group<LAMBOptions>> groups);

 private:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  bool together() const override { return true; }
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
