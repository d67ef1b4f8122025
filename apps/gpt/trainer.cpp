#include "gpt/trainer.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/nn/build.h>
#include <cleave/nn/shard.h>
#include <cleave/ops/host.h>
#include <cleave/ops/inplace.h>
#include <cleave/optim/clip.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gpt/finite.h"

namespace gpt {

namespace optim = cleave::optim;
using cleave::Tensor;

namespace {

// A prvalue: a model is not moved.
Gpt build(const TrainOptions& o) {
  cleave::seed(o.seed);
  return nn::build<Gpt>({.dtype = o.dtype, .deferred = o.deferred}, o.model);
}

// AdamW as GPTs are trained: matrices decay, biases and norms do not.
optim::AdamW make_optimizer(Gpt& model, const Placement& placement, const TrainOptions& o) {
  if (placement.mesh)
    nn::shard(model, *placement.mesh, placement.plan);
  else
    nn::materialize(model);
  auto [matrices, others] = optim::partition(model.parameters(), optim::decays);
  optim::AdamWOptions options{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay};
  optim::AdamWOptions no_decay = options;
  no_decay.weight_decay = 0;
  return optim::AdamW({{.parameters = matrices, .options = options}, {.parameters = others, .options = no_decay}});
}

optim::Schedule make_schedule(const TrainOptions& o) {
  double last = o.min_lr.value_or(o.lr / 30) / o.lr;
  int64_t warmup = std::min(o.warmup.value_or(o.steps / 10), o.steps - 1);
  optim::Schedule decay = optim::cosine(o.steps - warmup, last);
  return warmup > 0 ? optim::warmup(warmup).then(decay) : decay;
}

// Dropout masks of a step depend on the seed and the step, not on what ran before.
uint64_t step_seed(uint64_t seed, int64_t step) { return seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step); }

}  // namespace

Trainer::Trainer(const TrainOptions& options, const Placement& placement)
    : options_(options),
      placement_(placement),
      model_(build(options)),
      optimizer_(make_optimizer(model_, placement, options)),
      schedule_(make_schedule(options)) {}

Tensor Trainer::placed(const Tensor& x) const {
  return placement_.mesh ? cleave::dist::replicate(x, *placement_.mesh) : x;
}

Tensor Trainer::forward(const Batch& batch, int64_t step) const {
  cleave::seed(step_seed(options_.seed, step));
  return loss_of(model_(placed(batch.ids)), placed(batch.targets));
}

double Trainer::backward(const Batch& batch, int64_t step) {
  Tensor loss = forward(batch, step);
  double value = cleave::item<double>(loss);
  if (!std::isfinite(value)) {
    loss = {};
    cleave::NoGrad off;
    FirstNotFinite first;
    forward(batch, step);
    throw cleave::ValueError(fmt::format("step {}: the loss is {}; {}", step, std::abs(value), first.text()));
  }
  loss.backward();
  return value;
}

double Trainer::update(int64_t step) {
  double norm = optim::grad_norm(model_.parameters());
  if (!std::isfinite(norm))
    throw cleave::ValueError(fmt::format("step {}: the norm of the gradients is {}; {}", step, std::abs(norm),
                                         first_gradient_not_finite(model_)));
  if (options_.clip > 0 && norm > options_.clip)  // as clip_grad_norm, which would spread a norm that is not finite
    for (const auto& p : model_.parameters())
      if (p.grad().defined()) cleave::mul_(p.grad(), options_.clip / (norm + 1e-6));
  optimizer_.set_lr_factor(schedule_(step - 1));
  optimizer_.step();
  optimizer_.zero_grad();
  return norm;
}

double Trainer::evaluate(const std::vector<uint8_t>& text, const std::vector<int64_t>& starts) {
  cleave::NoGrad off;
  model_.eval();
  double total = 0;
  int64_t batches = 0;
  auto size = static_cast<size_t>(options_.batch);
  for (size_t at = 0; at + size <= starts.size(); at += size, ++batches) {
    auto first = starts.begin() + static_cast<std::ptrdiff_t>(at);
    Batch batch = windows(text, std::vector<int64_t>(first, first + options_.batch), options_.model.seq);
    total += cleave::item<double>(forward(batch, 0));
  }
  model_.train();
  return total / static_cast<double>(batches);
}

}  // namespace gpt
