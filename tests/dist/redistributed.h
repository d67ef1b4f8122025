// Tensors with known values under any layout, and checks of what a redistribution makes of them.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>

namespace cleave::test {

using namespace cleave::dist;

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

/// The value at a global index: small numbers of both signs and zeros, exact in every dtype (modulo 2^bits).
inline int64_t value_at(int64_t index, DType dtype) {
  int64_t v = static_cast<int64_t>(mix(static_cast<uint64_t>(index) + 17) % 13) - 6;
  return dtype == DType::boolean ? v & 1 : v;
}

/// Calls f(element of the block, global index) in row-major order of the block.
template <class F>
void for_block(const View& view, const Shape& global, const Shape& offset, F&& f) {
  int64_t n = view.numel();
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0, index = 0, step = 1;
    for (int d = view.rank(); d-- > 0;) {
      int64_t k = rest % view.shape[d];
      rest /= view.shape[d];
      at += k * view.strides[d];
      index += (k + offset[d]) * step;
      step *= global[d];
    }
    f(at, index);
  }
}

/// This rank's number among the terms of a partial tensor, and how many there are.
inline std::pair<int64_t, int64_t> term_of(const LayoutData& layout) {
  const MeshState& mesh = *layout.mesh;
  int64_t term = 0;
  for (size_t a = 0; a < mesh.axes().size(); ++a)
    if (layout.partial & axis_bit(static_cast<int>(a))) term = term * mesh.axes()[a].size + mesh.coordinates()[a];
  return {term, mesh.size_of(layout.partial)};
}

/// The number that this rank holds of the value at `index`: the terms have mixed signs and combine to the value.
inline int64_t held_at(int64_t index, DType dtype, const LayoutData& layout) {
  auto [term, terms] = term_of(layout);
  int64_t value = value_at(index, dtype);
  auto other = [&](int64_t t) { return static_cast<int64_t>(mix(static_cast<uint64_t>(index * 31 + t + 5)) % 9) - 4; };
  if (layout.op != ReduceOp::sum) {  // one rank, another for each element, holds the extremum
    if (index % terms == term) return value;
    int64_t less = std::abs(other(term));
    if (dtype == DType::boolean) return layout.op == ReduceOp::max ? 0 : 1;
    return layout.op == ReduceOp::max ? value - less : value + less;
  }
  if (term > 0) return other(term);
  for (int64_t t = 1; t < terms; ++t) value -= other(t);
  return value;
}

/// Whether a partial tensor of this dtype makes sense for the tests: sums of bools are not bools, and max and min of
/// negative numbers do not survive u8.
inline bool has_partial(DType dtype, ReduceOp op) {
  return op == ReduceOp::sum ? dtype != DType::boolean : dtype != DType::u8;
}

/// `strided`: the block's memory is transposed, so that nothing is contiguous.
inline Tensor make_input(const Shape& shape, DType dtype, Layout layout, bool strided = false) {
  Box box = local_box(shape, *layout.data());
  Shape stored = box.shape;
  if (strided) std::reverse(stored.begin(), stored.end());
  Tensor x =
      cleave::detail::make_tensor(shape, stored, dtype, Device::Cpu, layout.data(), !layout.mesh().contains_self());
  View view = x.impl()->view;
  if (strided) {
    std::reverse(view.shape.begin(), view.shape.end());
    std::reverse(view.strides.begin(), view.strides.end());
    x = cleave::detail::make_view(x, view, shape, layout.data());
  }
  if (x.impl()->absent) return x;
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    for_block(view, shape, box.offset, [&](int64_t at, int64_t index) {
      int64_t held = held_at(index, dtype, *layout.data());
      if constexpr (sizeof(T) == 2)
        view.as<T>()[at] = T(static_cast<float>(held));
      else
        view.as<T>()[at] = static_cast<T>(held);
    });
  });
  return x;
}

inline void require(bool condition, const char* what, const TensorType& from, Layout to) {
  if (!condition)
    throw Error(std::string(what) + ": " + describe(from) + " -> \"" + to_string(to) + "\" on " + to_string(to.mesh()));
}

/// Throws unless y, made from a tensor of type `from`, is of its layout, shape and value on this rank.
inline void require_value(const Tensor& y, const TensorType& from, Layout to) {
  require(y.type() == TensorType{from.dtype, from.shape, to.data()}, "the type is wrong", from, to);
  require(y.impl()->absent == !to.mesh().contains_self(), "presence is wrong", from, to);
  if (y.impl()->absent) return;
  Box box = local_box(from.shape, *to.data());
  require(y.impl()->view.shape == box.shape, "the shape of the block is wrong", from, to);
  bool right = true;
  visit_dtype(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View& view = y.impl()->view;
    for_block(view, from.shape, box.offset, [&](int64_t at, int64_t index) {
      T expected;
      if constexpr (sizeof(T) == 2)
        expected = T(static_cast<float>(value_at(index, from.dtype)));
      else
        expected = static_cast<T>(value_at(index, from.dtype));
      right = right && std::memcmp(&view.as<T>()[at], &expected, sizeof(T)) == 0;
    });
  });
  require(right, "a value is wrong", from, to);
}

inline int64_t counted_bytes() {
  int64_t bytes = 0;
  for (const CommCount& c : comm_counts()) bytes += c.bytes;
  return bytes;
}

/// Redistributes a known tensor and checks type, value and bytes. A partial result is reduced by one more step.
inline void check_pair(const Shape& shape, DType dtype, Layout from, Layout to, bool strided = false) {
  Tensor x = make_input(shape, dtype, from, strided);
  TensorType type = x.type();
  reset_comm_counts();
  Tensor y = redistribute_data(x, to.data(), "test");
  const RedistributionPlan& plan = plan_redistribution(type, to.data());
  int64_t counted = counted_bytes();
  // The first rank of a mesh has the largest block of every layout: it is the busiest.
  bool first = from.mesh() == to.mesh() && from.mesh().state()->ranks()[0] == World::current()->rank();
  require(first ? counted == plan.bytes : counted <= plan.bytes, "the plan has other bytes than were sent", type, to);
  if (to.data()->partial == 0) return require_value(y, type, to);
  require(y.type() == TensorType{dtype, shape, to.data()}, "the type is wrong", type, to);
  LayoutData summed = *to.data();
  summed.partial = 0;
  Layout reduced(to.mesh().state()->intern(summed));
  require_value(redistribute_data(y, reduced.data(), "test"), type, reduced);
}

}  // namespace cleave::test
