// Cotangents of the element-wise functions, and the functions of three inputs. A zero factor in front of an infinite
// one is taken as the limit, 0.
#pragma once
#include <cleave/core/math/activations.h>
#include <cleave/core/math/arithmetic.h>
#include <cleave/core/math/functions.h>
#include <cleave/core/math/trig.h>

namespace cleave::math {

CLEAVE_FUNCTION2(relu_grad, A, x, g, x > 0 ? g : T(0))
CLEAVE_FUNCTION2(abs_grad, A, x, g, mul(g, sign(x)))
CLEAVE_FUNCTION2(square_grad, A, x, g, mul(mul(T(2), x), g))
CLEAVE_FUNCTION2(clamp_grad, A, x, g, x >= p && x <= q ? g : T(0))
CLEAVE_FUNCTION2(log_grad, F, x, g, g / x)
CLEAVE_FUNCTION2(log1p_grad, F, x, g, g / (x + T(1)))
CLEAVE_FUNCTION2(sqrt_grad, F, y, g, T(0.5) * g / y)
CLEAVE_FUNCTION2(rsqrt_grad, F, y, g, T(-0.5) * g * (y * y * y))
CLEAVE_FUNCTION2(reciprocal_grad, F, y, g, -g*(y* y))
CLEAVE_FUNCTION2(sin_grad, F, x, g, g* cos(x))
CLEAVE_FUNCTION2(cos_grad, F, x, g, -g* sin(x))
CLEAVE_FUNCTION2(tanh_grad, F, y, g, g*(T(1) - y * y))
CLEAVE_FUNCTION2(sigmoid_grad, F, y, g, g*(y*(T(1) - y)))
CLEAVE_FUNCTION2(silu_grad, F, x, g, g* silu_derivative(x))
CLEAVE_FUNCTION2(softplus_grad, F, x, g, g* sigmoid(x))
CLEAVE_FUNCTION2(erf_grad, F, x, g, g* erf_derivative(x))
CLEAVE_FUNCTION2(gelu_grad, F, x, g, g* gelu_derivative(x))
CLEAVE_FUNCTION2(gelu_tanh_grad, F, x, g, g* gelu_tanh_derivative(x))
CLEAVE_FUNCTION2(pow_scalar_grad, F, x, g, p == 0 ? T(0) : g * p * pow(x, p - T(1)))
CLEAVE_FUNCTION2(expm1_grad, F, y, g, g*(y + T(1)))
CLEAVE_FUNCTION2(rdiv_scalar_grad, F, x, g, -g* p / (x * x))

CLEAVE_FUNCTION3(where, A, c, a, b, c != 0 ? a : b)
CLEAVE_FUNCTION3(mul_add, A, a, b, c, add(mul(a, b), c))
CLEAVE_FUNCTION3(maximum_grad, F, a, b, g, a > b ? g : (a == b ? T(0.5) * g : T(0)))
CLEAVE_FUNCTION3(minimum_grad, F, a, b, g, a < b ? g : (a == b ? T(0.5) * g : T(0)))
CLEAVE_FUNCTION3(div_grad_b, F, a, b, g, -g*(a / b) / b)
CLEAVE_FUNCTION3(pow_grad_a, F, a, b, g, b == 0 ? T(0) : g * b * pow(a, b - T(1)))
CLEAVE_FUNCTION3(pow_grad_b, F, a, b, g, a == 0 ? T(0) : g * pow(a, b) * log(a))

}  // namespace cleave::math
