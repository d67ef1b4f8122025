// Tensors as lists of numbers on the host: what tests compare.
#pragma once
#include <string>
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave::test {

/// The elements of a tensor in row-major order. Integers are exact to 2^53.
struct Values {
  DType dtype = DType::f64;
  Shape shape;
  std::vector<double> v;
};

/// How a tensor lies in memory.
enum class Form {
  dense,
  strided,       ///< dims reversed, every second element of a larger buffer whose rest is NaN or far out of range
  expanded,      ///< stride 0 along dim 0; the values must not depend on it
  expanded_last  ///< stride 0 along the last dim
};

/// A plain tensor of these values in another dtype (rounded or truncated).
Tensor make_tensor(const Values& values, DType dtype, Form form = Form::dense);
/// The elements of a plain tensor, or of this rank's block.
Values values_of(const Tensor& x);
/// The values as they are after rounding to `dtype`.
Values rounded(const Values& values, DType dtype);

/// Whether both are NaN, or equal, or differ by at most `tolerance` * max(1, largest |want|). Returns "" or the first
/// difference in words.
std::string difference(const Values& got, const Values& want, double tolerance);
/// As above for equal bits.
std::string bit_difference(const Tensor& a, const Tensor& b);

/// A pseudo-random number that depends on its arguments alone.
uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0);
uint64_t hash_of(const std::string& text);
/// A hash of the elements of this rank's block.
uint64_t hash_elements(const Tensor& x);
/// Uniform in [0, 1).
double unit(uint64_t random);

}  // namespace cleave::test
