// Stochastic gradient descent.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  ///< added to the gradient as weight_decay * w
  bool nesterov = false;    ///< needs momentum and no dampening
};

/// buf = momentum * buf + (1-dampening) * g (at first g); w -= lr * (nesterov ? g + momentum * buf : buf), as PyTorch
/// (Sutskever et al. 2013). State: momentum_buffer if there is momentum, and `master` for halves.
class SGD : public GroupedOptimizer<SGDOptions> {
 public:
  explicit SGD(const std::vector<nn::Parameter>& parameters, const SGDOptions& options = {});
  explicit SGD(const std::vector<Tensor>& tensors, const SGDOptions& options = {});
  /// All throw ValueError for nesterov without momentum or with dampening.
  explicit SGD(std::vector<Group<SGDOptions>> groups);

 private:
  void update(const Update& update) override;
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
