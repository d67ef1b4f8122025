// A matrix as library products take it.
#pragma once
#include <cstdint>

#include <cleave/core/dtype.h>

namespace cleave::cpu {

/// Row-major with leading stride `ld` (elements), or the transpose of such a matrix.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t ld;
  bool transposed;
};

}  // namespace cleave::cpu
