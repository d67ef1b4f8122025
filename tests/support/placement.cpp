#include "support/placement.h"

#include <cleave/core/tensor_impl.h>

#include <cmath>

namespace cleave::test {
namespace {

using dist::Box;
using dist::LayoutData;
using dist::MeshState;

// Calls f(position in the block, position in the global tensor), both row-major.
template <class F>
void for_block(const Box& box, const Shape& global, F&& f) {
  int64_t n = numel(box.shape);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int d = box.shape.rank(); d-- > 0;) {
      at += (rest % box.shape[d] + box.offset[d]) * step;
      rest /= box.shape[d];
      step *= global[d];
    }
    f(static_cast<size_t>(i), static_cast<size_t>(at));
  }
}

// Term `term` of `terms` that add up to `value`: one rank, by element, holds what the others leave.
double term_of(double value, int64_t term, int64_t terms, uint64_t seed, bool integral) {
  auto other = [&](int64_t t) {
    uint64_t r = mix(seed, static_cast<uint64_t>(t));
    if (r % 4 == 0) return 0.0;
    return integral ? static_cast<double>(r % 7) - 3 : std::round((unit(r) - 0.5) * 3 * 0x1p16) * 0x1p-16;
  };
  int64_t keeper = static_cast<int64_t>(seed % static_cast<uint64_t>(terms));
  if (term != keeper) return other(term);
  for (int64_t t = 0; t < terms; ++t)
    if (t != keeper) value -= other(t);
  return value;
}

std::string where(const MeshState& mesh, size_t rank) { return " on rank " + std::to_string(mesh.ranks()[rank]); }

}  // namespace

Tensor place(const Values& values, DType dtype, const LayoutData* layout, uint64_t seed, Form form) {
  const MeshState& mesh = *layout->mesh;
  Box box = dist::local_box(values.shape, *layout);
  int64_t term = 0;
  for (size_t a = 0; a < mesh.axes().size(); ++a)
    if (layout->partial >> a & 1) term = term * mesh.axes()[a].size + mesh.coordinates()[a];
  Values block{dtype, box.shape, std::vector<double>(static_cast<size_t>(numel(box.shape)))};
  for_block(box, values.shape, [&](size_t i, size_t at) {
    block.v[i] = layout->partial
                     ? term_of(values.v[at], term, mesh.size_of(layout->partial), mix(seed, at), !is_floating(dtype))
                     : values.v[at];
  });
  Tensor x = make_tensor(block, dtype, form);
  return detail::make_view(x, x.impl()->view, values.shape, layout);
}

Held hold(const Tensor& x) { return {x.dtype(), x.shape(), *x.impl()->layout, values_of(x), hash_elements(x)}; }

bool same_layout(const LayoutData& a, const LayoutData& b) {
  return a.dims == b.dims && a.rank == b.rank && a.ellipsis == b.ellipsis && a.partial == b.partial && a.op == b.op;
}

std::string check_held(std::span<const Held* const> ranks, const MeshState& mesh, const Values& want,
                       double tolerance) {
  const Held& first = *ranks[0];
  const LayoutData& layout = first.layout;
  Values whole{first.dtype, first.global, std::vector<double>(static_cast<size_t>(numel(first.global)), 0.0)};
  dist::AxisMask replicated = mesh.all_axes() & ~layout.split() & ~layout.partial;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Held& held = *ranks[r];
    if (held.dtype != first.dtype || !(held.global == first.global) || !same_layout(held.layout, layout))
      return "another type than rank 0's" + where(mesh, r);
    if (layout.rank != held.global.rank() || layout.ellipsis >= 0)
      return "a layout of " + std::to_string(layout.rank) + " dims for " + to_string(held.global);
    std::array<int, dist::kMaxAxes> at = mesh.coordinates_of(static_cast<int>(r)), source = at;
    Box box = dist::local_box(held.global, layout, at);
    if (!(box.shape == held.block.shape))
      return "a block of " + to_string(held.block.shape) + " instead of " + to_string(box.shape) + where(mesh, r);
    for (size_t a = 0; a < mesh.axes().size(); ++a)
      if (replicated >> a & 1) source[a] = 0;
    if (source != at) {
      if (held.bits != ranks[static_cast<size_t>(mesh.index_of(source))]->bits)
        return "replicas differ" + where(mesh, r);
      continue;
    }
    for_block(box, held.global, [&](size_t i, size_t position) { whole.v[position] += held.block.v[i]; });
  }
  return difference(whole, want, tolerance);
}

}  // namespace cleave::test
