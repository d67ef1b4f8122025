// One model in training: the same steps whether it is on one device or split.
#pragma once
#include <cleave/nn/data/token_loader.h>
#include <cleave/optim/ema.h>
#include <cleave/optim/loss_scaler.h>
#include <cleave/optim/optimizer.h>
#include <cleave/optim/schedule.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gpt/model.h"
#include "gpt/options.h"
#include "gpt/plans.h"

namespace gpt {

using Batch = nn::TokenBatch;
/// A batch of one part from values that all ranks hold: i64 [B, T] each, no target ignored. No layout: plain.
Batch batch_of(const Tensor& ids, const Tensor& targets, cleave::dist::Layout layout = {});

/// What became of a step.
struct StepResult {
  double loss = 0;              ///< mean over the batch's tokens, nats
  double grad_norm = 0;         ///< before clipping
  bool overflow = false;        ///< scaled gradients left f16: the update was left out, the next scale is smaller
  std::string not_finite = {};  ///< which number was not, and where it came from: the update was left out
  int64_t row = 0;              ///< of the batch, the first of the part that this came from
};

class Trainer {
 public:
  /// Builds the model from options.seed and places it. Throws what `nn::shard` throws for a plan that does not fit.
  /// On Device::Meta nothing is computed: the steps only take and give back memory, which is counted.
  Trainer(const TrainOptions& options, const Placement& placement, cleave::Device device = cleave::Device::Cpu);

  /// The layout in which the model takes tokens [B, T]; none: plain.
  cleave::dist::Layout token_layout() const;

  /// Forward and backward of a batch, part by part, before the update number `step` (from 1). Gradients add up in their
  /// ranks and are reduced once, behind the last part. Returns the loss, a scalar: the sum over all tokens that count
  /// divided by their number, over all parts and ranks. Communicates; reads no number.
  Tensor gradients(const Batch& batch, int64_t step);
  /// The norm of all gradients. Communicates.
  double gradient_norm() const;
  /// Divides the gradients by the loss scale, where there is one. Communicates.
  void unscale();
  /// Clips the gradients to options.update.clip, given their norm, updates the parameters, forgets the gradients.
  void update(int64_t step, double norm);
  /// All of a step. If the loss or the norm is not finite the update is left out and the gradients are forgotten, alike
  /// on all ranks.
  StepResult step(const Batch& batch, int64_t step);

  /// The sum of the losses of all tokens that count, without dropout, of the averaged weights if there are any.
  /// Communicates. On Device::Meta 0.
  double evaluate(const Batch& batch);

  /// What `step` or `evaluate` is at: "forward", "backward", "update".
  const char* doing() const { return doing_; }

  double lr(int64_t step) const { return options_.update.lr * schedule_(step - 1); }
  const Gpt& model() const { return model_; }
  cleave::optim::Optimizer& optimizer() { return *optimizer_; }
  /// Null: none.
  cleave::optim::EMA* ema() { return ema_ ? &*ema_ : nullptr; }
  cleave::optim::LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  Tensor forward(const nn::MicroBatch& part) const;
  void explain_loss(const Batch& batch, int64_t step, StepResult& result) const;

  TrainOptions options_;
  Placement placement_;
  Gpt model_;
  std::unique_ptr<cleave::optim::Optimizer> optimizer_;
  std::optional<cleave::optim::LossScaler> scaler_;
  std::optional<cleave::optim::EMA> ema_;
  cleave::optim::Schedule schedule_;
  mutable const char* doing_ = "forward";
};

}  // namespace gpt
