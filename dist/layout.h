// Layout: how a tensor's dims are split over the axes of a mesh, and on which axes it is a partial sum.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cleave/core/type.h>

namespace cleave::dist {

class DeviceMesh;
class MeshState;

inline constexpr int kMaxAxes = 8;
/// A set of mesh axes, one bit each.
using AxisMask = uint32_t;
constexpr AxisMask axis_bit(int axis) { return AxisMask{1} << axis; }

/// The mesh axes that split one dim, major first.
class AxisList {
 public:
  AxisList() = default;
  AxisList(std::initializer_list<int> axes) {
    for (int a : axes) push_back(a);
  }
  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int operator[](int i) const { return axis_[static_cast<size_t>(i)]; }
  int back() const { return axis_[static_cast<size_t>(n_) - 1]; }
  const uint8_t* begin() const { return axis_.data(); }
  const uint8_t* end() const { return axis_.data() + n_; }
  void push_back(int axis) { axis_[static_cast<size_t>(n_++)] = static_cast<uint8_t>(axis); }
  void pop_back() { axis_[static_cast<size_t>(--n_)] = 0; }
  void truncate(int n) {
    while (n_ > n) pop_back();
  }
  AxisMask mask() const {
    AxisMask m = 0;
    for (int a : *this) m |= axis_bit(a);
    return m;
  }
  friend bool operator==(const AxisList&, const AxisList&) = default;

 private:
  std::array<uint8_t, kMaxAxes> axis_{};  // unused entries stay zero: equality is memberwise
  int8_t n_ = 0;
};

/// How the terms of a partial tensor combine. Only `sum` reaches tensors that users see.
enum class ReduceOp : uint8_t { sum, max, min };
std::string_view to_string(ReduceOp op);

/// The content of a layout, interned by its mesh: two equal layouts of one mesh are the same object.
struct LayoutData {
  const MeshState* mesh = nullptr;
  std::array<AxisList, kMaxDims> dims;  ///< by tensor dim
  int8_t rank = 0;                      ///< number of dims, without the ellipsis
  int8_t ellipsis = -1;                 ///< the `...` of a pattern stands before this dim; -1: no pattern
  AxisMask partial = 0;
  ReduceOp op = ReduceOp::sum;

  AxisMask split() const {
    AxisMask m = 0;
    for (int d = 0; d < rank; ++d) m |= dims[static_cast<size_t>(d)].mask();
    return m;
  }
  /// The dim that `axis` splits, or -1.
  int dim_of(int axis) const {
    for (int d = 0; d < rank; ++d)
      if (dims[static_cast<size_t>(d)].mask() & axis_bit(axis)) return d;
    return -1;
  }
};

/// A layout of a mesh; a pointer to interned content, so cheap to copy and compare. Made by `mesh.layout(text)`. Valid
/// as long as the World that the mesh is of.
class Layout {
 public:
  Layout() = default;
  explicit Layout(const LayoutData* data) : data_(data) {}

  bool defined() const { return data_ != nullptr; }
  const LayoutData* data() const { return data_; }
  DeviceMesh mesh() const;
  /// Number of dims (of a pattern: without its ellipsis).
  int rank() const { return data_->rank; }
  bool is_pattern() const { return data_->ellipsis >= 0; }
  /// Names of the axes that split `dim` (negative counts from the end), major first.
  std::vector<std::string> axes(int dim) const;
  /// Throws LayoutError for an axis that the mesh lacks; so do the next two.
  bool is_partial(std::string_view axis) const;
  bool is_replicated(std::string_view axis) const;
  bool is_sharded(std::string_view axis) const;
  /// No axis splits a dim and none is partial.
  bool is_replicated() const;
  /// A pattern filled to `rank` dims; a layout that is none must have that rank. Throws LayoutError.
  Layout resolve(int rank) const;

  friend bool operator==(Layout, Layout) = default;

 private:
  const LayoutData* data_ = nullptr;
};

/// "dp, -, tp partial(pp)": the text that `mesh.layout` reads.
std::string to_string(Layout layout);

/// A contiguous range of one dim.
struct Block {
  int64_t offset = 0;
  int64_t size = 0;
};
/// The balanced block `index` of `n` items over `parts`: the first n mod parts blocks hold one more.
constexpr Block balanced_block(int64_t n, int64_t parts, int64_t index) {
  int64_t q = n / parts, r = n % parts;
  return {index * q + (index < r ? index : r), q + (index < r ? 1 : 0)};
}

/// This rank's (or another's, by mesh coordinates) block of a tensor: offsets and sizes by dim.
struct Box {
  Shape offset;
  Shape shape;
};
Box local_box(const Shape& global, const LayoutData& layout);
Box local_box(const Shape& global, const LayoutData& layout, const std::array<int, kMaxAxes>& coordinates);

}  // namespace cleave::dist
