// Every op of the library, by family. Explicit: static initialisers vanish from static libraries.
#include <cleave/ops/op.h>
#include <cleave/ops/registry.h>

// clang-format off
#define CLEAVE_OPS(OP) \
  OP(neg) OP(abs) OP(sign) OP(square) OP(exp) OP(expm1) OP(log) OP(log1p) OP(sqrt) OP(rsqrt) OP(reciprocal) OP(sin) OP(cos) OP(erf) OP(floor) OP(ceil) OP(round) OP(pow_scalar) OP(clamp) OP(is_nan) OP(is_finite) OP(logical_not) \
  OP(relu) OP(tanh) OP(sigmoid) OP(silu) OP(softplus) OP(gelu) OP(gelu_tanh) \
  OP(add) OP(sub) OP(mul) OP(div) OP(pow) OP(maximum) OP(minimum) OP(floor_divide) OP(remainder) OP(add_scalar) OP(rsub_scalar) OP(mul_scalar) OP(rdiv_scalar) OP(max_scalar) OP(min_scalar) OP(eq) OP(ne) OP(lt) OP(le) OP(gt) OP(ge) OP(logical_and) OP(logical_or) OP(logical_xor) OP(eq_scalar) OP(ne_scalar) OP(lt_scalar) OP(le_scalar) OP(gt_scalar) OP(ge_scalar) OP(where) OP(masked_fill) \
  OP(cast) \
  OP(sum) OP(mean) OP(prod) OP(any) OP(all) \
  OP(amax) OP(amin) OP(argmax) OP(argmin) \
  OP(matmul) OP(linear) \
  OP(permute) OP(expand) OP(slice) OP(unbind) OP(clone) \
  OP(reshape) \
  OP(cat) OP(pad) \
  OP(embedding) OP(index_select) OP(gather) \
  OP(softmax) OP(log_softmax) OP(logsumexp) \
  OP(layer_norm) OP(rms_norm) \
  OP(dropout) \
  OP(cross_entropy_terms) \
  OP(linear_cross_entropy_terms) \
  OP(attention) \
  OP(rope)
// clang-format on

namespace cleave {
namespace ops {
#define OP(name) extern const OpDef name;
CLEAVE_OPS(OP)
#undef OP
}  // namespace ops

std::span<const OpDef* const> registered_ops() {
#define OP(name) &ops::name,
  static constexpr const OpDef* all[] = {CLEAVE_OPS(OP)};
#undef OP
  return all;
}

}  // namespace cleave
