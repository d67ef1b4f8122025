// From tensors back to numbers, and comparisons of whole tensors.
#pragma once
#include <string>
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave {

namespace detail {
/// The global value as a dense plain host tensor of this dtype. Communicates unless x is R everywhere.
Tensor host_value(const char* op, const Tensor& x, DType dtype);
}  // namespace detail

/// The one element of x, converted to T. Communicates unless x is plain or R everywhere. Throws ShapeError for any
/// other number of elements.
template <class T>
T item(const Tensor& x);
/// The global elements in row-major order, converted to T. Communicates unless x is plain or R everywhere.
template <class T>
std::vector<T> to_vector(const Tensor& x);

struct AllcloseOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;
};
/// Whether shapes agree and |a - b| <= atol + rtol * |b| everywhere, in f64. Communicates for distributed tensors.
bool allclose(const Tensor& a, const Tensor& b, const AllcloseOptions& options = {});
/// Whether shapes, dtypes and all elements are equal. Communicates for distributed tensors.
bool equal(const Tensor& a, const Tensor& b);

/// The type, and the numbers of a plain or R tensor (at most 6 at either end of a dim). Never communicates.
std::string to_string(const Tensor& x);

}  // namespace cleave
