// Loads into, and stores from, dense blocks of a compute type; copies of raw elements.
#pragma once
#include <cstddef>
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// What element-wise work is done in.
enum class Compute : uint8_t { f32, f64, i64 };
inline constexpr int kComputeTypes = 3;

/// Indexed by DType, then Compute. Strides are in elements; a stride of 0 repeats one element.
struct ConvertLoops {
  using Load = void (*)(const void* from, int64_t stride, int64_t n, void* to);
  using Store = void (*)(const void* from, int64_t n, void* to, int64_t stride);
  Load load[8][kComputeTypes];
  Store store[8][kComputeTypes];
  /// By the logarithm of the element's bytes, 0 to 3.
  void (*copy[4])(const void* from, int64_t from_stride, int64_t n, void* to, int64_t to_stride);
  /// to[r * to_stride + c] = from[c * from_stride + r] for r < rows, c < columns: in tiles, so that both sides use
  /// whole cache lines.
  void (*transpose[4])(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to,
                       int64_t to_stride);
};

CLEAVE_EACH_ISA(extern const ConvertLoops convert_loops)

}  // namespace cleave::cpu
