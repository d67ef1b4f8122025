// Autocast: matrix products in 16 bits, what needs range in f32, as each op's record says.
#pragma once
#include <memory>
#include <optional>

#include <cleave/core/tensor.h>
#include <cleave/ops/op.h>

namespace cleave {

namespace detail {
struct AutocastState;
/// Of the innermost scope of this rank; null: off.
extern constinit thread_local AutocastState* autocast_state;

/// Turns autocast off for what an op does within itself, and on again.
class AutocastPause {
 public:
  AutocastPause() : before_(autocast_state) { autocast_state = nullptr; }
  ~AutocastPause() { autocast_state = before_; }
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  AutocastState* before_;
};

/// An op's inputs as the scope and the op's `precision` want them.
class AutocastInputs {
 public:
  AutocastInputs(const OpDef& op, Inputs in, AutocastState& state);
  Inputs inputs() const { return inputs_; }

 private:
  std::vector<Tensor> cast_;  // keeps them alive
  std::vector<const Tensor*> inputs_;
};
}  // namespace detail

/// While it lives, ops of this rank take their floating inputs as `OpDef::precision` says: `low` in `dtype` (bf16 or
/// f16), `f32` at least in f32, `widest` in the widest among them; f64 is left alone. The casts are on the tape, so the
/// gradient of an f32 parameter is f32; the cast of a parameter is made once for the scope. Scopes nest, the innermost
/// counts, also `Autocast off(std::nullopt)`. Only forward: backward computes in the dtypes that forward had, in a
/// scope or not. The same under every layout; inputs are cast before they are redistributed.
class Autocast {
 public:
  /// Throws DTypeError for any other dtype.
  explicit Autocast(std::optional<DType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::unique_ptr<detail::AutocastState> state_;
  detail::AutocastState* before_;
};

/// The dtype of `low` ops now; none: autocast is off.
std::optional<DType> autocast_dtype();

}  // namespace cleave
