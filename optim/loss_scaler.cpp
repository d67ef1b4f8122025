#include <cleave/core/primitives.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/host.h>
#include <cleave/ops/inplace.h>
#include <cleave/optim/finite.h>
#include <cleave/optim/internal/gradients.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/loss_scaler.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::optim {

namespace {
// Of the scale, so that it and what gradients are multiplied with are numbers in f32.
constexpr double kLeast = std::numeric_limits<float>::min();
}  // namespace

LossScaler::LossScaler(const LossScalerOptions& o) : options_(o), scale_(o.initial_scale) {
  detail::require(o.initial_scale > 0 && std::isfinite(o.initial_scale), "loss_scaler", "initial_scale",
                  o.initial_scale, "be above 0 and finite");
  detail::require(o.growth >= 1, "loss_scaler", "growth", o.growth, "be at least 1");
  detail::require(o.backoff > 0 && o.backoff <= 1, "loss_scaler", "backoff", o.backoff, "be above 0, and 1 at most");
  detail::require(o.growth_interval >= 1, "loss_scaler", "growth_interval", static_cast<double>(o.growth_interval),
                  "be at least 1");
}

Tensor LossScaler::scale(const Tensor& loss) const {
  if (!options_.enabled) return loss;
  return mul(is_half(loss.dtype()) ? cast(loss, DType::f32) : loss, scale_);
}

void LossScaler::unscale(Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (seen_.count(&optimizer))
    throw ValueError("[loss_scaler] the gradients of this optimizer were unscaled already; call update() after step()");
  std::vector<Tensor> leaves = detail::leaves(optimizer.parameters());
  bool finite = detail::all_finite(leaves);  // before they are divided: an infinity stays one
  detail::Scopes scopes;
  for (const Tensor& g : detail::gradients(leaves))
    if (!g.impl()->absent) mul_(g.local(), 1 / scale_);
  seen_[&optimizer] = {finite, false};
}

bool LossScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!seen_.count(&optimizer)) unscale(optimizer);
  Seen& seen = seen_.at(&optimizer);
  if (seen.stepped) throw ValueError("[loss_scaler] step() was called twice for one optimizer; call update() between");
  seen.stepped = true;
  if (seen.finite) optimizer.step();
  return seen.finite;
}

void LossScaler::update() {
  if (!options_.enabled) return;
  if (seen_.empty()) throw ValueError("[loss_scaler] update() without a step() or unscale() before it");
  bool finite = true;
  for (const auto& [optimizer, seen] : seen_) finite = finite && seen.finite;
  seen_.clear();
  if (!finite) {
    scale_ = std::max(scale_ * options_.backoff, kLeast);
    good_steps_ = 0;
    ++skipped_;
  } else if (++good_steps_ >= options_.growth_interval) {  // a loaded count may be beyond it
    good_steps_ = 0;
    if (std::isfinite(static_cast<float>(scale_ * options_.growth))) scale_ *= options_.growth;
  }
}

namespace {
Tensor scalar(double value, DType dtype) {
  Tensor out = cleave::detail::make_tensor({}, dtype, Device::Cpu);
  cleave::detail::fill_view(Device::Cpu, out.impl()->view, value);
  return out;
}
}  // namespace

std::vector<NamedTensor> LossScaler::state() const {
  return {{"scaler.scale", scalar(scale_, DType::f64)},
          {"scaler.growth_tracker", scalar(static_cast<double>(good_steps_), DType::i64)},
          {"scaler.skipped", scalar(static_cast<double>(skipped_), DType::i64)}};
}

void LossScaler::load_state(const std::vector<NamedTensor>& state) {
  std::map<std::string, double> values;
  for (const auto& [name, tensor] : state) {
    if (name != "scaler.scale" && name != "scaler.growth_tracker" && name != "scaler.skipped")
      throw ValueError("[load_state] \"" + name + "\" is no state of a loss scaler");
    if (tensor.dim() != 0) throw ShapeError("[load_state] " + name + " is " + to_string(tensor.type()) + ", no scalar");
    if (!values.emplace(name, item<double>(tensor)).second)
      throw ValueError("[load_state] \"" + name + "\" is given twice");
  }
  for (const char* name : {"scaler.scale", "scaler.growth_tracker", "scaler.skipped"})
    if (!values.count(name)) throw ValueError(std::string("[load_state] \"") + name + "\" is missing");
  double scale = values["scaler.scale"];
  detail::require(scale > 0 && std::isfinite(scale), "load_state", "scaler.scale", scale, "be above 0 and finite");
  for (const char* name : {"scaler.growth_tracker", "scaler.skipped"})
    detail::require(values[name] >= 0, "load_state", name, values[name], "not be negative");
  scale_ = values["scaler.scale"];
  good_steps_ = static_cast<int64_t>(values["scaler.growth_tracker"]);
  skipped_ = static_cast<int64_t>(values["scaler.skipped"]);
}

}  // namespace cleave::optim
