// The functions of two inputs.
#pragma once
#include <cleave/core/math/arithmetic.h>
#include <cleave/core/math/functions.h>

namespace cleave::math {

CLEAVE_FUNCTION2(add, A, a, b, add(a, b))
CLEAVE_FUNCTION2(sub, A, a, b, sub(a, b))
CLEAVE_FUNCTION2(mul, A, a, b, mul(a, b))
CLEAVE_FUNCTION2(maximum, A, a, b, maximum(a, b))
CLEAVE_FUNCTION2(minimum, A, a, b, minimum(a, b))
CLEAVE_FUNCTION2(div, F, a, b, a / b)
CLEAVE_FUNCTION2(pow, F, a, b, pow(a, b))
CLEAVE_FUNCTION2(atan2, F, a, b, atan2(a, b))
CLEAVE_FUNCTION2(floor_div, A, a, b, floor_div(a, b))
CLEAVE_FUNCTION2(remainder, A, a, b, remainder(a, b))

CLEAVE_FUNCTION2(eq, C, a, b, a == b)
CLEAVE_FUNCTION2(ne, C, a, b, a != b)
CLEAVE_FUNCTION2(lt, C, a, b, a < b)
CLEAVE_FUNCTION2(le, C, a, b, a <= b)
CLEAVE_FUNCTION2(gt, C, a, b, a > b)
CLEAVE_FUNCTION2(ge, C, a, b, a >= b)
CLEAVE_FUNCTION2(logical_and, C, a, b, (a != 0) & (b != 0))
CLEAVE_FUNCTION2(logical_or, C, a, b, (a != 0) | (b != 0))
CLEAVE_FUNCTION2(logical_xor, C, a, b, (a != 0) != (b != 0))

}  // namespace cleave::math
