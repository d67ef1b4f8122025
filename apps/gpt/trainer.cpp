#include "gpt/trainer.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/nn/build.h>
#include <cleave/nn/gradient_precision.h>
#include <cleave/nn/recompute.h>
#include <cleave/nn/shard.h>
#include <cleave/ops/autocast.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/host.h>
#include <cleave/optim/clip.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gpt/finite.h"
#include "gpt/optimizer.h"

namespace gpt {

namespace optim = cleave::optim;

namespace {

// A prvalue: a model is not moved.
Gpt build(const TrainOptions& o, cleave::Device device) {
  cleave::seed(o.seed);
  return nn::build<Gpt>({.dtype = o.step.dtype, .device = device, .deferred = o.deferred}, o.model);
}

std::unique_ptr<optim::Optimizer> placed_optimizer(Gpt& model, const Placement& placement, const TrainOptions& o) {
  if (placement.mesh)
    nn::shard(model, *placement.mesh, placement.plan);
  else
    nn::materialize(model);
  return make_optimizer(model, o.update);
}

optim::Schedule make_schedule(const TrainOptions& o) {
  double last = o.update.min_lr.value_or(o.update.lr / 30) / o.update.lr;
  int64_t warmup = std::min(o.update.warmup.value_or(o.steps / 10), o.steps - 1);
  optim::Schedule decay = optim::cosine(o.steps - warmup, last);
  return warmup > 0 ? optim::warmup(warmup).then(decay) : decay;
}

optim::LossScalerOptions scaler_options(double fixed) {
  if (fixed > 0) return {.initial_scale = fixed, .growth = 1, .backoff = 1};
  return {};
}

// Dropout masks of a step depend on the seed and the step, not on what ran before.
void seed_step(uint64_t seed, int64_t step) { cleave::seed(seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step)); }

}  // namespace

Batch batch_of(const Tensor& ids, const Tensor& targets, cleave::dist::Layout layout) {
  auto placed = [&](const Tensor& x) { return layout.defined() ? cleave::dist::distribute(x, layout) : x; };
  Batch batch;
  batch.tokens = numel(targets);
  batch.parts.push_back({.ids = placed(ids), .targets = placed(targets), .tokens = batch.tokens});
  return batch;
}

Trainer::Trainer(const TrainOptions& options, const Placement& placement, cleave::Device device)
    : options_(options),
      placement_(placement),
      model_(build(options, device)),
      optimizer_(placed_optimizer(model_, placement, options)),
      schedule_(make_schedule(options)) {
  model_.head.loss_chunk = options.step.loss_chunk;
  nn::set_gradient_precision(model_, {.keep = options.step.gradients, .reduce = options.step.reduce});
  if (options.step.recompute == std::vector<std::string>{"all"})
    nn::set_full_recompute(model_);
  else
    nn::set_recompute(model_, options.step.recompute);
  if (options.step.dtype == cleave::DType::f16 || options.step.autocast == cleave::DType::f16)
    scaler_.emplace(scaler_options(options.step.loss_scale));
  if (options.update.ema > 0) ema_.emplace(*optimizer_, optim::EMAOptions{.decay = options.update.ema});
}

cleave::dist::Layout Trainer::token_layout() const {
  if (!placement_.mesh) return {};
  for (const auto& [name, layout] : model_.input_layouts())
    if (name == "0") return layout.resolve(2);
  return placement_.mesh->replicated(2);
}

Tensor Trainer::forward(const nn::MicroBatch& part) const {
  doing_ = "forward";
  if (!options_.step.autocast) return model_(part.ids, part.targets);
  cleave::Autocast scope(options_.step.autocast);
  return model_(part.ids, part.targets);
}

Tensor Trainer::gradients(const Batch& batch, int64_t step) {
  seed_step(options_.seed, step);
  Tensor total;
  double share = 1.0 / static_cast<double>(std::max<int64_t>(1, batch.tokens));
  for (const nn::MicroBatch& part : batch.parts) {
    Tensor loss = forward(part) * share;
    doing_ = "backward";
    (scaler_ ? scaler_->scale(loss) : loss).backward({.sync = &part == &batch.parts.back()});
    cleave::NoGrad off;
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

double Trainer::gradient_norm() const { return optim::grad_norm(model_.parameters()); }

void Trainer::update(int64_t step, double norm) {
  double clip = options_.update.clip;
  if (clip > 0 && std::isfinite(norm)) optim::clip_grads_with_norm(model_.parameters(), clip, norm);
  optimizer_->set_lr_factor(schedule_(step - 1));
  bool stepped = true;
  if (scaler_) {
    stepped = scaler_->step(*optimizer_);
    scaler_->update();
  } else {
    optimizer_->step();
  }
  optimizer_->zero_grad();
  if (ema_ && stepped) ema_->update();
}

void Trainer::unscale() {
  if (scaler_) scaler_->unscale(*optimizer_);
}

StepResult Trainer::step(const Batch& batch, int64_t step) {
  StepResult r{.loss = cleave::item<double>(gradients(batch, step))};
  if (std::isfinite(r.loss)) {
    doing_ = "update";
    unscale();
    r.grad_norm = gradient_norm();
    r.overflow = scaler_ && !std::isfinite(r.grad_norm) && options_.step.loss_scale == 0 && scaler_->scale() > 1;
    if (std::isfinite(r.grad_norm) || r.overflow) {
      update(step, r.grad_norm);  // the scaler leaves out a step that overflowed
      return r;
    }
    r.not_finite =
        fmt::format("the norm of the gradients is {}; {}", std::abs(r.grad_norm), first_gradient_not_finite(model_));
  } else {
    explain_loss(batch, step, r);
  }
  optimizer_->zero_grad();
  return r;
}

// The forward once more, part by part, until the first module whose output is not finite.
void Trainer::explain_loss(const Batch& batch, int64_t step, StepResult& r) const {
  cleave::NoGrad off;
  seed_step(options_.seed, step);
  for (const nn::MicroBatch& part : batch.parts) {
    FirstNotFinite first;
    if (std::isfinite(cleave::item<double>(forward(part)))) continue;
    r.not_finite = fmt::format("the loss is {}; {}", std::abs(r.loss), first.text());
    r.row = part.first_row;
    return;
  }
  r.not_finite = fmt::format("the loss is {}; each part's is finite, but not their sum", std::abs(r.loss));
}

double Trainer::evaluate(const Batch& batch) {
  cleave::NoGrad off;
  std::optional<optim::EMA::Scope> averaged;
  if (ema_) averaged.emplace(*ema_);
  model_.eval();
  double total = 0;
  for (const nn::MicroBatch& part : batch.parts) {
    Tensor loss = forward(part);
    if (loss.device() != cleave::Device::Meta) total += cleave::item<double>(loss);
  }
  model_.train();
  return total;
}

}  // namespace gpt
