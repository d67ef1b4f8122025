// What a kernel sees of a tensor: this rank's elements as pointer, dtype, sizes and strides.
#pragma once
#include <cstdint>

#include <cleave/core/dtype.h>
#include <cleave/core/shape.h>

namespace cleave {

/// Strides are in elements and may be 0 (expanded dims). `data` is null for meta and for absent blocks.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int rank() const { return shape.rank(); }
  int64_t numel() const { return cleave::numel(shape); }
  bool contiguous() const { return is_contiguous(shape, strides); }
};

}  // namespace cleave
