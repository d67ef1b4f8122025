// Adagrad: rates that fall with the squares seen.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;             ///< the rate of step t (from 1) is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;         ///< added to the gradient as weight_decay * w
  double initial_accumulator = 0;  ///< of `sum`
  double eps = 1e-10;
};

/// sum += g^2; w -= lr_t * g / (sqrt(sum) + eps) (Duchi, Hazan and Singer 2011), as PyTorch. State: sum, and `master`
/// for halves.
class Adagrad : public GroupedOptimizer<AdagradOptions> {
 public:
  explicit Adagrad(const std::vector<nn::Parameter>& parameters, const AdagradOptions& options = {});
  explicit Adagrad(const std::vector<Tensor>& tensors, const AdagradOptions& options = {});
  /// All throw ValueError for an option out of its range.
  explicit Adagrad(std::vector<Group<AdagradOptions>> groups);

 private:
  void update(const Update& update) override;
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
