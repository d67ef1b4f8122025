// Lion: the sign of a momentum.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled
};

/// c = b1 m + (1-b1) g; w = (1 - lr * weight_decay) w - lr * sign(c); m = b2 m + (1-b2) g (Chen et al. 2023, "Symbolic
/// Discovery of Optimization Algorithms"). State: exp_avg, and `master` for halves.
class Lion : public GroupedOptimizer<LionOptions> {
 public:
  explicit Lion(const std::vector<nn::Parameter>& parameters, const LionOptions& options = {});
  explicit Lion(const std::vector<Tensor>& tensors, const LionOptions& options = {});
  /// All throw ValueError for an option out of its range.
  explicit Lion(std::vector<Group<LionOptions>> groups);

 private:
  void update(const Update& update) override;
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
