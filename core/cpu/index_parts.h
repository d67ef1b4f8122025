// What the indexed kernels share: indices as dense i64, and typed access to elements.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/scratch.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

/// The elements of an i64 or i32 view in row-major order.
class DenseIndices {
 public:
  explicit DenseIndices(const View& index) : memory_(bytes(index)) {
    copy(index, {memory_.data(), DType::i64, index.shape, contiguous_strides(index.shape)});
  }
  const int64_t* data() const { return memory_.as<int64_t>(); }
  static int64_t bytes(const View& index) { return index.numel() * 8; }

 private:
  Scratch memory_;
};

/// The C++ type in which elements of T are added up.
template <class T>
struct SumOf {
  using type = int64_t;
};
template <>
struct SumOf<double> {
  using type = double;
};
template <>
struct SumOf<float> {
  using type = float;
};
template <>
struct SumOf<BFloat16> {
  using type = float;
};
template <>
struct SumOf<Half> {
  using type = float;
};

/// Calls f with a value of an unsigned type as wide as the elements of `t`: for moves.
template <class F>
void visit_width(DType t, F&& f) {
  switch (size_of(t)) {
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

}  // namespace cleave::cpu
