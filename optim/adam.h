// Adam and AdamW.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient as weight_decay * w
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled: w *= 1 - lr * weight_decay first
};

/// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) (Kingma and Ba
/// 2015). State: exp_avg, exp_avg_sq, and `master` for halves.
class Adam : public GroupedOptimizer<AdamOptions> {
 public:
  explicit Adam(const std::vector<nn::Parameter>& parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<Tensor>& tensors, const AdamOptions& options = {});
  explicit Adam(std::vector<Group<AdamOptions>> groups);

 private:
  void update(const Update& update) override;
  bool rounds() const override { return true; }
  std::vector<std::string> state_names() const override;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW : public GroupedOptimizer<AdamWOptions> {
 public:
  explicit AdamW(const std::vector<nn::Parameter>& parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<Tensor>& tensors, const AdamWOptions& options = {});
  explicit AdamW(std::vector<Group<AdamWOptions>> groups);

 private:
  void update(const Update& update) override;
  bool rounds() const override { return true; }
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
