// Dynamic loss scaling: gradients of 16 bits kept out of underflow.
#pragma once
#include <map>

#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct LossScalerOptions {
  double initial_scale = 65536;
  double growth = 2;     ///< times the scale, after `growth_interval` steps in a row that were finite
  double backoff = 0.5;  ///< times the scale, after one that was not
  int64_t growth_interval = 2000;
  bool enabled = true;  ///< off: scale 1, nothing is looked at, every step is taken
};

/// The loss is multiplied by a scale before backward and the gradients are divided by it (Micikevicius et al. 2018), as
/// torch.amp.GradScaler:
///
///     scaler.scale(loss).backward();
///     scaler.unscale(opt);  // only if gradients are looked at or clipped
///     scaler.step(opt);
///     scaler.update();
///
/// A step whose gradients are not all finite is skipped, by all ranks together: parameters, moments and step counts
/// stay as they are. The scale is the same number on all ranks, finite in f32 and not below f32's least normal number.
class LossScaler {
 public:
  /// Throws ValueError unless initial_scale > 0, growth >= 1, 0 < backoff <= 1, growth_interval >= 1.
  explicit LossScaler(const LossScalerOptions& options = {});

  /// loss times the scale, in f32 if the loss has 16 bits. On the tape.
  Tensor scale(const Tensor& loss) const;
  /// Syncs the gradients of the optimizer's parameters, divides them by the scale in place, and finds out whether all
  /// are finite. Communicates: the sync, and one number. Throws ValueError if that was done since the last update().
  void unscale(Optimizer& optimizer);
  /// `unscale` if that was not done, then the optimizer's step unless some gradient is not finite. Whether it stepped:
  /// the same on all ranks. Throws ValueError if called twice for one optimizer since the last update().
  bool step(Optimizer& optimizer);
  /// Sets the scale for the next step, by all optimizers stepped or unscaled since the last call. Throws ValueError if
  /// there is none.
  void update();

  double scale() const { return options_.enabled ? scale_ : 1.0; }
  /// How many updates followed a skipped step.
  int64_t skipped() const { return skipped_; }

  /// "scaler.scale" (f64), "scaler.growth_tracker" and "scaler.skipped" (i64), scalars.
  std::vector<NamedTensor> state() const;
  /// Throws ValueError for another name, one missing or given twice, a scale not above 0 or not finite, or a negative
  /// count, ShapeError for what is no scalar; then nothing has changed.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  struct Seen {
    bool finite, stepped;
  };
  LossScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0, skipped_ = 0;
  std::map<const Optimizer*, Seen> seen_;
};

}  // namespace cleave::optim
