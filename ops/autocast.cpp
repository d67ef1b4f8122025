#include <cleave/autograd/grad_mode.h>
#include <cleave/ops/autocast.h>
#include <cleave/ops/cast.h>

#include <unordered_map>

namespace cleave {
namespace detail {

/// A cast of a parameter, good while the parameter is as it was.
struct ParameterCast {
  Tensor parameter, result;
  uint32_t version;
};

struct AutocastState {
  DType low;
  std::unordered_map<const TensorImpl*, ParameterCast> casts[2];  // by grad mode
};

constinit thread_local AutocastState* autocast_state = nullptr;

namespace {

DType wider(DType a, DType b) {
  if (a == b) return a;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

bool is_cast(const Tensor* x) { return x->defined() && is_floating(x->dtype()) && x->dtype() != DType::f64; }

DType wanted(const OpDef& op, Inputs in, DType low) {
  if (op.precision == Precision::low) return low;
  if (op.precision == Precision::f32) return DType::f32;
  std::optional<DType> widest;
  for (const Tensor* x : in)
    if (x->defined() && is_floating(x->dtype())) widest = widest ? wider(*widest, x->dtype()) : x->dtype();
  return widest.value_or(DType::f32);
}

// Of a parameter as it is stored: a gathered one would be kept alive by the memo.
Tensor cast_for(AutocastState& state, const Tensor& x, DType to) {
  bool leaf = x.impl()->parameter && !x.has_producer() && to == state.low;
  if (!leaf) return cast(x, to);
  auto& casts = state.casts[grad_enabled() ? 1 : 0];
  ParameterCast& known = casts[x.impl()];
  if (!known.result.defined() || known.version != x.version()) known = {x, cast(x, to), x.version()};
  return known.result;
}

}  // namespace

AutocastInputs::AutocastInputs(const OpDef& op, Inputs in, AutocastState& state) : inputs_(in.begin(), in.end()) {
  if (op.precision == Precision::keeps) return;
  DType to = wanted(op, in, state.low);
  cast_.reserve(in.size());
  for (const Tensor*& x : inputs_) {
    if (!is_cast(x) || x->dtype() == to) continue;
    cast_.push_back(cast_for(state, *x, to));
    x = &cast_.back();
  }
}

}  // namespace detail

Autocast::Autocast(std::optional<DType> dtype) : before_(detail::autocast_state) {
  if (dtype && !is_half(*dtype))
    throw DTypeError("[autocast] computes in bf16 or f16, not in " + std::string(to_string(*dtype)) +
                     "; pass std::nullopt to turn it off");
  if (dtype) state_.reset(new detail::AutocastState{*dtype, {}});
  detail::autocast_state = state_.get();
}
Autocast::~Autocast() { detail::autocast_state = before_; }

std::optional<DType> autocast_dtype() {
  return detail::autocast_state ? std::optional(detail::autocast_state->low) : std::nullopt;
}

}  // namespace cleave
