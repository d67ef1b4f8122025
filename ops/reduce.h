// Reductions over one dim, several, or all (`{}`). `keepdim` leaves reduced dims with size 1. Over a split dim, sums
// come out partial; extrema, argmax and logsumexp use small collectives.
#pragma once
#include <limits>

#include <cleave/core/tensor.h>

namespace cleave {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);   ///< integers and bool sum in i64
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< floating; of nothing: NaN
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< not differentiable; integers in i64
/// Variance with divisor n - correction, two passes.
Tensor var(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
/// Largest (smallest) values; ties share the gradient evenly; NaN wins. Throws ShapeError over an empty dim.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

struct Extremum {
  Tensor values;   ///< the gradient goes to the element at `indices`
  Tensor indices;  ///< i64, the first of equals
};
Extremum max(const Tensor& x, int64_t dim, bool keepdim = false);
Extremum min(const Tensor& x, int64_t dim, bool keepdim = false);
inline Tensor max(const Tensor& x) { return amax(x); }
inline Tensor min(const Tensor& x) { return amin(x); }
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);  ///< i64, the first of equals; NaN is the largest
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
/// (sum |x|^p)^(1/p); p = infinity: max |x|. The gradient at norm 0 is 0.
Tensor norm(const Tensor& x, double p = 2.0, const Dims& dims = {}, bool keepdim = false);

Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  ///< bool: some element is not 0
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

}  // namespace cleave
