// Element-wise work on the CPU: any dtype, any strides.
#pragma once
#include <span>

#include <cleave/core/kernel.h>
#include <cleave/core/pointwise.h>

namespace cleave::cpu {

/// out = fn(in...), with every input broadcast to out's shape by aligning last dims. Compute type: that of the
/// promotion of the inputs (comparisons: so that f32 with i64 compares in f32); for group F on integers: f32. The
/// result is converted to out's dtype. In `where` the condition does not take part in the promotion. Integers compared
/// with a number that is no integer: f64; integers with a scalar (x + p, x * p, max(x, p), ...) into a floating out:
/// out's. `out` may be an input, but not overlap one otherwise.
void pointwise(Pointwise fn, std::span<const View* const> in, const View& out, PointwiseParams params = {});
/// The bytes of copies that it makes of inputs; data is not looked at.
int64_t pointwise_scratch(std::span<const View* const> in, const View& out);

/// dst = src converted to dst's dtype; shapes are equal (src may have strides of 0). Integers from floats truncate;
/// bool from anything is `!= 0`. Overlapping views are not allowed.
void copy(const View& src, const View& dst);
/// The bytes of a copy in between; data is not looked at.
int64_t copy_scratch(const View& src, const View& dst);

/// Every element = value, converted to the dtype.
void fill(const View& dst, double value);
void fill(const View& dst, int64_t value);

/// acc += x, elementwise, equal shapes; the sum is made in acc's compute type. For gradient slots.
void accumulate(const View& x, const View& acc);
/// out = a + b, in out's compute type; equal shapes, any strides and dtypes.
void add(const View& a, const View& b, const View& out);

}  // namespace cleave::cpu
