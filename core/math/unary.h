// The functions of one input.
#pragma once
#include <cleave/core/math/activations.h>
#include <cleave/core/math/arithmetic.h>
#include <cleave/core/math/functions.h>
#include <cleave/core/math/trig.h>

namespace cleave::math {

CLEAVE_FUNCTION1(neg, A, x, neg(x))
CLEAVE_FUNCTION1(abs, A, x, abs(x))
CLEAVE_FUNCTION1(square, A, x, mul(x, x))
CLEAVE_FUNCTION1(sign, A, x, sign(x))
CLEAVE_FUNCTION1(relu, A, x, x < 0 ? T(0) : x)
CLEAVE_FUNCTION1(add_scalar, A, x, add(x, p))
CLEAVE_FUNCTION1(rsub_scalar, A, x, sub(p, x))
CLEAVE_FUNCTION1(mul_scalar, A, x, mul(x, p))
CLEAVE_FUNCTION1(clamp, A, x, is_nan(x) ? x : minimum(maximum(x, p), q))
CLEAVE_FUNCTION1(max_scalar, A, x, maximum(x, p))
CLEAVE_FUNCTION1(min_scalar, A, x, minimum(x, p))
CLEAVE_FUNCTION1(rdiv_scalar, F, x, p / x)
CLEAVE_FUNCTION1(pow_scalar, F, x, pow(x, p))

CLEAVE_FUNCTION1(exp, F, x, exp(x))
CLEAVE_FUNCTION1(log, F, x, log(x))
CLEAVE_FUNCTION1(log1p, F, x, log1p(x))
CLEAVE_FUNCTION1(expm1, F, x, expm1(x))
CLEAVE_FUNCTION1(sqrt, F, x, sqrt(x))
CLEAVE_FUNCTION1(rsqrt, F, x, T(1) / sqrt(x))
CLEAVE_FUNCTION1(reciprocal, F, x, T(1) / x)
CLEAVE_FUNCTION1(sin, F, x, sin(x))
CLEAVE_FUNCTION1(cos, F, x, cos(x))
CLEAVE_FUNCTION1(tanh, F, x, tanh(x))
CLEAVE_FUNCTION1(sigmoid, F, x, sigmoid(x))
CLEAVE_FUNCTION1(silu, F, x, silu(x))
CLEAVE_FUNCTION1(softplus, F, x, softplus(x))
CLEAVE_FUNCTION1(erf, F, x, erf(x))
CLEAVE_FUNCTION1(gelu, F, x, gelu(x))
CLEAVE_FUNCTION1(gelu_tanh, F, x, gelu_tanh(x))
CLEAVE_FUNCTION1(floor, F, x, floor(x))
CLEAVE_FUNCTION1(ceil, F, x, ceil(x))
CLEAVE_FUNCTION1(round, F, x, round_even(x))

CLEAVE_FUNCTION1(is_nan, C, x, x != x ? T(1) : T(0))
CLEAVE_FUNCTION1(is_finite, C, x, sub(x, x) == 0)
CLEAVE_FUNCTION1(logical_not, C, x, x == 0)
CLEAVE_FUNCTION1(eq_scalar, C, x, x == p)
CLEAVE_FUNCTION1(ne_scalar, C, x, x != p)
CLEAVE_FUNCTION1(lt_scalar, C, x, x < p)
CLEAVE_FUNCTION1(le_scalar, C, x, x <= p)
CLEAVE_FUNCTION1(gt_scalar, C, x, x > p)
CLEAVE_FUNCTION1(ge_scalar, C, x, x >= p)

}  // namespace cleave::math
