// Averages of weights over training.
#pragma once
#include <cleave/optim/optimizer.h>

namespace cleave::optim {

struct EMAOptions {
  double decay = 0.999;
  bool warmup = false;  ///< the decay of update t (from 0) is min(decay, (1 + t) / (10 + t))
};

/// The exponential moving average a = decay a + (1 - decay) w of parameters (Polyak and Juditsky 1992), which starts as
/// their values. Averages lie as the parameters are stored, in f32 for those of 16 bits; a parameter that was sharded
/// since takes its average along. Nothing communicates, except where an average follows its parameter to another
/// layout.
class EMA {
 public:
  /// Throws ValueError if there are no parameters, or unless 0 <= decay < 1.
  explicit EMA(std::vector<nn::Parameter> parameters, const EMAOptions& options = {});

  /// Takes the parameters' values in: once after each optimizer step. Throws ValueError while swapped.
  void update();
  /// Puts the averages in the parameters' places, and at the next call the parameters' own values, bit by bit. Between
  /// the two only read them.
  void swap();
  bool swapped() const { return !own_.empty(); }
  /// Averages in the parameters' places as long as it lives: `{ optim::EMA::Scope averaged(ema); evaluate(model); }`.
  class Scope {
   public:
    explicit Scope(EMA& ema) : ema_(ema) { ema_.swap(); }
    ~Scope() { ema_.swap(); }
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
  void follow(size_t index);
  std::vector<nn::Parameter> parameters_;
  std::vector<std::string> names_;
  EMAOptions options_;
  std::vector<Tensor> averages_, own_;  // own_: the parameters' values while swapped
  int64_t updates_ = 0;
};

}  // namespace cleave::optim
