// One model in training: the same steps whether it is on one device or split.
#pragma once
#include <cleave/optim/adam.h>
#include <cleave/optim/schedule.h>

#include <vector>

#include "gpt/data.h"
#include "gpt/model.h"
#include "gpt/options.h"
#include "gpt/plans.h"

namespace gpt {

class Trainer {
 public:
  /// Builds the model from options.seed and places it. Throws what `nn::shard` throws for a plan that does not fit.
  Trainer(const TrainOptions& options, const Placement& placement);

  /// Loss and gradients of a batch, before the update number `step` (from 1). Communicates. Throws ValueError, alike on
  /// all ranks, naming the step and the first module whose output is not finite if the loss is not.
  double backward(const Batch& batch, int64_t step);
  /// Clips the gradients, updates the parameters, forgets the gradients; returns the gradients' norm before.
  /// Communicates. Throws ValueError naming the first parameter whose gradient is not finite if the norm is not.
  double update(int64_t step);
  /// Mean loss over the windows that start at `starts` (a multiple of the batch), without dropout. Communicates.
  double evaluate(const std::vector<uint8_t>& text, const std::vector<int64_t>& starts);

  double lr() const { return optimizer_.lr(); }
  const Gpt& model() const { return model_; }

 private:
  Tensor forward(const Batch& batch, int64_t step) const;
  Tensor placed(const Tensor& x) const;

  TrainOptions options_;
  Placement placement_;
  Gpt model_;
  cleave::optim::AdamW optimizer_;
  cleave::optim::Schedule schedule_;
};

}  // namespace gpt
