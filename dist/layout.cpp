// Layout: questions about axes, and the blocks that a layout gives to the ranks.
#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::dist {

std::string_view to_string(ReduceOp op) { return op == ReduceOp::sum ? "sum" : op == ReduceOp::max ? "max" : "min"; }

DeviceMesh Layout::mesh() const { return DeviceMesh(data_->mesh); }

std::vector<std::string> Layout::axes(int dim) const {
  int d = dim < 0 ? dim + rank() : dim;
  if (d < 0 || d >= rank())
    throw LayoutError("dim " + std::to_string(dim) + " is out of range for the layout \"" + to_string(*this) +
                      "\" of " + std::to_string(rank()) + " dims");
  std::vector<std::string> names;
  for (int a : data_->dims[static_cast<size_t>(d)]) names.push_back(data_->mesh->axes()[static_cast<size_t>(a)].name);
  return names;
}

bool Layout::is_partial(std::string_view axis) const { return data_->partial & axis_bit(data_->mesh->axis(axis)); }
bool Layout::is_sharded(std::string_view axis) const { return data_->split() & axis_bit(data_->mesh->axis(axis)); }
bool Layout::is_replicated(std::string_view axis) const {
  return !((data_->partial | data_->split()) & axis_bit(data_->mesh->axis(axis)));
}
bool Layout::is_replicated() const { return data_->partial == 0 && data_->split() == 0; }

Layout Layout::resolve(int rank) const {
  const LayoutData& from = *data_;
  if (!is_pattern()) {
    if (rank == from.rank) return *this;
    throw LayoutError("layout \"" + to_string(*this) + "\" has " + std::to_string(from.rank) +
                      " dims, the tensor has " + std::to_string(rank) +
                      (rank == 0 ? "; a scalar's layout is \"...\"" : "; `...` stands for any number of unsplit dims"));
  }
  if (rank < from.rank)
    throw LayoutError("layout \"" + to_string(*this) + "\" has at least " + std::to_string(from.rank) +
                      " dims, the tensor has " + std::to_string(rank));
  LayoutData filled = from;
  filled.rank = static_cast<int8_t>(rank);
  filled.ellipsis = -1;
  int after = from.rank - from.ellipsis;  // dims named behind the ellipsis
  for (int i = 0; i < from.rank; ++i) filled.dims[static_cast<size_t>(i)] = AxisList{};
  for (int i = 0; i < from.ellipsis; ++i) filled.dims[static_cast<size_t>(i)] = from.dims[static_cast<size_t>(i)];
  for (int i = 0; i < after; ++i)
    filled.dims[static_cast<size_t>(rank - after + i)] = from.dims[static_cast<size_t>(from.ellipsis + i)];
  return Layout(from.mesh->intern(filled));
}

Box local_box(const Shape& global, const LayoutData& layout) {
  return local_box(global, layout, layout.mesh->coordinates());
}

Box local_box(const Shape& global, const LayoutData& layout, const std::array<int, kMaxAxes>& coordinates) {
  Box box;
  box.offset.resize(global.rank());
  box.shape = global;
  for (int d = 0; d < global.rank(); ++d) {
    for (int a : layout.dims[static_cast<size_t>(d)]) {
      Block b = balanced_block(box.shape[d], layout.mesh->size(a), coordinates[static_cast<size_t>(a)]);
      box.offset[d] += b.offset;
      box.shape[d] = b.size;
    }
  }
  return box;
}

}  // namespace cleave::dist
