// Every layout of a mesh for tensors of some rank: each axis replicated, partial, or at any place of any dim's list.
#pragma once
#include <vector>

#include <cleave/dist/mesh_state.h>

namespace cleave::test {

inline void add_layouts(dist::LayoutData& data, int axis, bool partials, std::vector<dist::Layout>& out) {
  const dist::MeshState& mesh = *data.mesh;
  if (axis == static_cast<int>(mesh.axes().size())) {
    out.emplace_back(mesh.intern(data));
    return;
  }
  add_layouts(data, axis + 1, partials, out);
  if (partials) {
    data.partial |= dist::axis_bit(axis);
    add_layouts(data, axis + 1, partials, out);
    data.partial &= ~dist::axis_bit(axis);
  }
  for (int d = 0; d < data.rank; ++d) {
    const dist::AxisList list = data.dims[static_cast<size_t>(d)];
    for (int at = 0; at <= list.size(); ++at) {
      dist::AxisList wider;
      for (int i = 0; i <= list.size(); ++i) {
        if (i == at) wider.push_back(axis);
        if (i < list.size()) wider.push_back(list[i]);
      }
      data.dims[static_cast<size_t>(d)] = wider;
      add_layouts(data, axis + 1, partials, out);
    }
    data.dims[static_cast<size_t>(d)] = list;
  }
}

inline std::vector<dist::Layout> all_layouts(dist::DeviceMesh mesh, int rank, bool partials = true,
                                             dist::ReduceOp op = dist::ReduceOp::sum) {
  dist::LayoutData data;
  data.mesh = mesh.state();
  data.rank = static_cast<int8_t>(rank);
  data.op = op;
  std::vector<dist::Layout> out;
  add_layouts(data, 0, partials, out);
  return out;
}

}  // namespace cleave::test
