// The type of a tensor: dtype, global shape and layout.
#pragma once
#include <string>

#include <cleave/core/dtype.h>
#include <cleave/core/shape.h>

namespace cleave {

namespace dist {
struct LayoutData;
class Layout;
}  // namespace dist

/// `layout` is null for a plain tensor.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  const dist::LayoutData* layout = nullptr;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// "f32[8@dp, 128, 512@tp] partial(tp)"; "f32[2, 8]" for a plain tensor.
std::string to_string(const TensorType& type);
/// `to_string` and, for a distributed type, its mesh: "f32[2@dp, 8] on mesh(dp=2, tp=4)".
std::string describe(const TensorType& type);

}  // namespace cleave
