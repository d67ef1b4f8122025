// Row-wise kernels on the CPU: softmax, norms, cross-entropy. Rows lie along `dim`, any strides; computed in f32 for
// the halves. Empty rows and zero rows are legal.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// y = softmax (or its logarithm) of x along dim; a row of -inf only gives NaN, as in PyTorch.
void softmax(const View& x, int dim, bool log, const View& y);
/// dx from y and dy: y*(dy - sum(dy*y)); for log: dy - exp(y)*sum(dy).
void softmax_backward(const View& y, const View& dy, int dim, bool log, const View& dx);
/// out = log(sum(exp(x))) along dim; out has size 1 there. A row of -inf only (or empty) gives -inf.
void logsumexp(const View& x, int dim, const View& out);

/// Normalises over the last `norm_dims` dims: y = (x - mean) * rstd * weight + bias, variance in two passes,
/// rstd = 1/sqrt(var + eps). weight and bias (shape of the normalised dims) may be null. mean, rstd: f32 (f64 for f64),
/// one per row, dense.
void layer_norm(const View& x, const View* weight, const View* bias, int norm_dims, double eps, const View& y,
                const View& mean, const View& rstd);
/// Any of dx, dweight, dbias may be null. dweight and dbias are summed over rows in fixed-size chunks, in order.
void layer_norm_backward(const View& x, const View* weight, const View& mean, const View& rstd, const View& dy,
                         int norm_dims, const View* dx, const View* dweight, const View* dbias);
/// y = x * rstd * weight, rstd = 1/sqrt(mean(x^2) + eps).
void rms_norm(const View& x, const View* weight, int norm_dims, double eps, const View& y, const View& rstd);
void rms_norm_backward(const View& x, const View* weight, const View& rstd, const View& dy, int norm_dims,
                       const View* dx, const View* dweight);
/// The bytes of the copy that these make of an x, y or dy whose last `norm_dims` dims are no one row; data is not
/// looked at.
int64_t norm_scratch(const View& x, int norm_dims);

/// The two sums over a block of classes that cross-entropy needs, for x with classes along `dim`: for each row,
/// terms[0, row] = sum(exp(x - shift)), terms[1, row] = x[target - first] if the target lies in this block, else 0,
/// terms[2, row] = sum(x) (for label smoothing; left out when terms has 2 rows).
/// shift: one per row (x's shape with size 1 at dim). target: i64 or i32, x's shape without dim, global class numbers.
/// terms: [2 or 3, x's shape without dim], f32 (f64 for f64).
void cross_entropy_terms(const View& x, const View& shift, const View& target, int dim, int64_t first,
                         const View& terms);
/// dx = dterms[0]*exp(x - shift) + (class == target ? dterms[1] : 0) + dterms[2].
void cross_entropy_terms_backward(const View& x, const View& shift, const View& target, const View& dterms, int dim,
                                  int64_t first, const View& dx);

}  // namespace cleave::cpu
