// Reductions on the CPU.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

enum class Reduce : uint8_t {
  sum,
  prod,
  max,         // NaN wins; identity -inf, the least integer, false
  min,         // likewise
  sum_abs,     // sum |x|
  sum_square,  // sum x^2
  max_abs,     // NaN wins; identity 0
  any,         // x != 0 somewhere
  all
};

/// Reduces x over every dim in which out has size 1 and x may not; out has x's rank. Accumulates in the accumulation
/// dtype of x (f64 in f64; sums into an f64 out in f64) over fixed-size chunks merged in order, so that the bits do not
/// depend on the number of threads. A reduction over no elements gives the identity.
void reduce(Reduce kind, const View& x, const View& out);
/// The bytes of its partial totals; data is not looked at.
int64_t reduce_scratch(Reduce kind, const View& x, const View& out);

/// Index along `dim` of the first largest (or smallest) element; NaN counts as larger (smaller) than all. out: i64,
/// x's shape with size 1 at `dim`. The dim must not be empty where out is not.
void arg_extremum(bool largest, const View& x, int dim, const View& out);

/// Inclusive running sum along `dim`, equal shapes.
void cumsum(const View& x, int dim, const View& out);

/// Rows of `dim`, stably sorted: values (x's dtype) and i64 indices. NaN counts as the largest.
void sort(bool descending, const View& x, int dim, const View& values, const View& indices);

}  // namespace cleave::cpu
