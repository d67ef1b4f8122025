// New tensors from numbers, sequences and random streams.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include <cleave/core/random.h>
#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave {

/// What a new tensor is. Without `layout` it is plain, or R on the ambient mesh (dist::UseMesh, sharded modules). With
/// one, each rank makes its own block; checked mode compares seeds.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;  ///< default: f32, or as each function says
  Device device = Device::Cpu;
  std::optional<uint64_t> seed =
      std::nullopt;          ///< of random numbers: a stream of its own that draws nothing from the rank's
  dist::Layout layout = {};  ///< may be a pattern
};

Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
/// Of x's shape, dtype, device and layout (partial axes become R).
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);

/// start, start + step, ... below end (above, for a negative step): ceil((end - start) / step) elements; i64 by
/// default.
Tensor arange(int64_t end, const TensorOptions& options = {});
Tensor arange(int64_t start, int64_t end, int64_t step = 1, const TensorOptions& options = {});
/// The n x n identity.
Tensor eye(int64_t n, const TensorOptions& options = {});
/// The lower (upper) triangle of the last two dims on and below (above) `diagonal`, zeros elsewhere. Differentiable.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

/// Uniform in [0, 1), standard normal, uniform integers in [low, high) (i64 by default). Element i of the global tensor
/// depends on (seed, call, i) alone: the same numbers under every layout. Philox4x32-10.
Tensor rand(const Shape& shape, const TensorOptions& options = {});
Tensor randn(const Shape& shape, const TensorOptions& options = {});
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {});

namespace detail {
Tensor from_host(const void* data, DType from, size_t count, const Shape& shape, const TensorOptions& options);
/// The key of a random tensor: the options' own seed, or the rank's stream.
RandomKey random_key(const TensorOptions& options);
enum class RandomKind : uint8_t { uniform, normal };
/// uniform in [a, b), or normal with mean a and deviation b, for a key drawn earlier.
Tensor random_tensor(RandomKind kind, const Shape& shape, const TensorOptions& options, RandomKey key, double a,
                     double b);
}  // namespace detail

/// A tensor of these values, row-major; dtype that of T unless options say otherwise. Throws ShapeError if the number
/// of values is not that of the shape. With a layout every rank passes all values.
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, const TensorOptions& options = {}) {
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return detail::from_host(bytes.data(), DType::boolean, bytes.size(), shape, options);
  } else {
    return detail::from_host(values.data(), dtype_of<T>(), values.size(), shape, options);
  }
}
/// A 1-D tensor of these values.
template <class T>
Tensor tensor(const std::vector<T>& values) {
  return tensor(values, Shape{static_cast<int64_t>(values.size())});
}

}  // namespace cleave
