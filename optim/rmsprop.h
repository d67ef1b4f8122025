// RMSProp: gradients divided by their running root mean square.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct RMSPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< of the running mean of squares
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient as weight_decay * w
  double momentum = 0;
  bool centered = false;  ///< divide by the deviation: the squared running mean is taken off
};

/// s = alpha s + (1-alpha) g^2; centered: a = alpha a + (1-alpha) g and d = s - a^2, else d = s; move = g / (sqrt(d) +
/// eps); with momentum b = momentum b + move in its place; w -= lr * move (Tieleman and Hinton 2012; Graves 2013), as
/// PyTorch. State: square_avg, grad_avg if centered, momentum_buffer if there is momentum, and `master` for halves.
class RMSProp : public GroupedOptimizer<RMSPropOptions> {
 public:
  explicit RMSProp(const std::vector<nn::Parameter>& parameters, const RMSPropOptions& options = {});
  explicit RMSProp(const std::vector<Tensor>& tensors, const RMSPropOptions& options = {});
  /// All throw ValueError for an option out of its range.
  explicit RMSProp(std::vector<Group<RMSPropOptions>> groups);

 private:
  void update(const Update& update) override;
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
