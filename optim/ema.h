// Averages of weights over training.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct EMAOptions {
  double decay = 0.999;
  bool warmup = false;  ///< the decay of update t (from 0) is min(decay, (1 + t) / (10 + t))
};

/// The exponential moving average a = decay a + (1 - decay) w of parameters (Polyak and Juditsky 1992), which starts as
/// their values. Averages of bf16 and f16 parameters are f32, and of an optimizer's parameters w is its f32 master: a
/// slow average takes in what the next 16-bit number is too far for. Averages lie as the optimizer's state does (so
/// they are split further than the parameters under ZeRO-1 and -2), without an optimizer as the plan says of it
/// (`Parameter::state_layout`); one whose parameter was sharded since goes along. `update` communicates only where an
/// average moves so, `swap` where averages are gathered.
class EMA {
 public:
  /// Throws ValueError if there are no parameters, if two have one name, or unless 0 <= decay < 1.
  explicit EMA(std::vector<nn::Parameter> parameters, const EMAOptions& options = {});
  /// Of the parameters of an optimizer, which lives longer.
  explicit EMA(const Optimizer& optimizer, const EMAOptions& options = {});

  /// Takes the parameters' values in: once after each optimizer step. Throws ValueError while swapped and for a
  /// deferred parameter.
  void update();
  /// Puts the averages in the parameters' places, rounded to their dtypes, and at the next call the parameters' own
  /// values, bit by bit. Between the two only read them. If it throws, the parameters have their own values.
  void swap();
  bool swapped() const { return !own_.empty(); }
  /// Averages in the parameters' places as long as it lives: `{ optim::EMA::Scope averaged(ema); evaluate(model); }`.
  class Scope {
   public:
    explicit Scope(EMA& ema) : ema_(ema) { ema_.swap(); }
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    EMA& ema_;
  };

  int64_t updates() const { return updates_; }
  /// "<parameter>.average" for each, and "ema.updates", a scalar i64. Tensors are its own.
  std::vector<NamedTensor> state() const;
  /// Takes such state in any order, also from another layout or mesh. Throws ValueError for an unknown name, one
  /// missing or given twice, or while swapped, ShapeError, DTypeError; then nothing has changed.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  EMA(std::vector<nn::Parameter> parameters, const Optimizer* optimizer, const EMAOptions& options);
  Tensor follow(size_t index);
  std::vector<nn::Parameter> parameters_;
  const Optimizer* optimizer_;  // null: none
  std::vector<std::string> names_;
  EMAOptions options_;
  std::vector<Tensor> averages_, own_;  // own_: the parameters' values while swapped
  int64_t updates_ = 0;
};

}  // namespace cleave::optim
