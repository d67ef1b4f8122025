// DeviceMesh: checks of what a user asks for, and parts of meshes.
#include <algorithm>
#include <cctype>

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::dist {

namespace {

std::string text_of(const std::vector<MeshAxis>& axes) {
  std::string out = "mesh(";
  for (size_t a = 0; a < axes.size(); ++a) out += (a ? ", " : "") + axes[a].name + "=" + std::to_string(axes[a].size);
  return out + ")";
}

void check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.size() > kMaxAxes)
    throw LayoutError(text_of(axes) + " has " + std::to_string(axes.size()) + " axes; a mesh has at most " +
                      std::to_string(kMaxAxes));
  for (size_t a = 0; a < axes.size(); ++a) {
    const std::string& name = axes[a].name;
    bool good = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) &&
                std::all_of(name.begin(), name.end(),
                            [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
    if (!good)
      throw LayoutError(text_of(axes) + ": the name of axis " + std::to_string(a) + " is \"" + name +
                        "\"; use letters, digits and underscores, a letter first");
    for (size_t b = 0; b < a; ++b)
      if (axes[b].name == name) throw LayoutError(text_of(axes) + ": axis " + name + " stands twice");
    if (axes[a].size < 1)
      throw LayoutError(text_of(axes) + ": axis " + name + " has size " + std::to_string(axes[a].size) +
                        "; it must be at least 1");
  }
}

const MeshState* find_mesh(World& world, const std::vector<MeshAxis>& axes, const std::vector<int>& ranks) {
  check_axes(axes);
  int64_t size = 1;
  for (const MeshAxis& a : axes) size *= a.size;
  if (size != static_cast<int64_t>(ranks.size()))
    throw LayoutError(text_of(axes) + " has " + std::to_string(size) + " places for " + std::to_string(ranks.size()) +
                      " ranks; choose sizes whose product is the number of ranks");
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= world.size())
      throw LayoutError(text_of(axes) + ": rank " + std::to_string(sorted[i]) + " is not in a world of " +
                        std::to_string(world.size()));
    if (i && sorted[i] == sorted[i - 1])
      throw LayoutError(text_of(axes) + ": rank " + std::to_string(sorted[i]) + " stands twice");
  }
  return world.mesh(axes, ranks);
}

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) ranks[static_cast<size_t>(r)] = r;
  return ranks;
}

}  // namespace

DeviceMesh::DeviceMesh(World& world, const std::vector<MeshAxis>& axes)
    : state_(find_mesh(world, axes, all_ranks(world))) {}
DeviceMesh::DeviceMesh(World& world, const std::vector<MeshAxis>& axes, const std::vector<int>& ranks)
    : state_(find_mesh(world, axes, ranks)) {}

int DeviceMesh::axes() const { return static_cast<int>(state_->axes().size()); }
int DeviceMesh::size() const { return static_cast<int>(state_->ranks().size()); }
int DeviceMesh::size(std::string_view axis) const { return state_->size(state_->axis(axis)); }
const std::string& DeviceMesh::name(int axis) const { return state_->axes()[static_cast<size_t>(axis)].name; }
bool DeviceMesh::contains_self() const { return state_->member(); }
int DeviceMesh::coordinate(std::string_view axis) const {
  int a = state_->axis(axis);
  return state_->member() ? state_->coordinates()[static_cast<size_t>(a)] : -1;
}

Layout DeviceMesh::replicated(int rank) const {
  if (rank < 0 || rank > kMaxDims)
    throw LayoutError("a tensor has 0 to " + std::to_string(kMaxDims) + " dims, not " + std::to_string(rank));
  LayoutData data;
  data.rank = static_cast<int8_t>(rank);
  return Layout(state_->intern(data));
}

DeviceMesh DeviceMesh::at(std::string_view axis, int coordinate) const {
  int fixed = state_->axis(axis);
  if (coordinate < 0 || coordinate >= state_->size(fixed))
    throw LayoutError("axis " + std::string(axis) + " of " + to_string(*this) + " has no coordinate " +
                      std::to_string(coordinate));
  std::vector<MeshAxis> axes = state_->axes();
  axes.erase(axes.begin() + fixed);
  std::vector<int> ranks;
  for (int i = 0; i < size(); ++i)
    if (state_->coordinates_of(i)[static_cast<size_t>(fixed)] == coordinate)
      ranks.push_back(state_->ranks()[static_cast<size_t>(i)]);
  return DeviceMesh(state_->world(), axes, ranks);
}

DeviceMesh DeviceMesh::sub(const std::vector<std::string>& names) const {
  std::vector<MeshAxis> axes;
  std::vector<int> chosen;
  for (const std::string& name : names) {
    chosen.push_back(state_->axis(name));
    axes.push_back(state_->axes()[static_cast<size_t>(chosen.back())]);
  }
  check_axes(axes);
  if (!state_->member())
    throw LayoutError("this rank is outside " + to_string(*this) + ", so it is in none of its parts");
  int64_t places = 1;
  for (const MeshAxis& a : axes) places *= a.size;
  // The ranks with this rank's coordinates on all other axes, row-major in the order of `names`.
  std::vector<int> ranks(static_cast<size_t>(places));
  for (int i = 0; i < size(); ++i) {
    auto c = state_->coordinates_of(i), other = c;
    size_t at = 0;
    for (int a : chosen) {
      auto k = static_cast<size_t>(a);
      at = at * static_cast<size_t>(state_->size(a)) + static_cast<size_t>(c[k]);
      other[k] = state_->coordinates()[k];
    }
    if (other == state_->coordinates()) ranks[at] = state_->ranks()[static_cast<size_t>(i)];
  }
  return DeviceMesh(state_->world(), axes, ranks);
}

std::string to_string(DeviceMesh mesh) { return text_of(mesh.state()->axes()); }

}  // namespace cleave::dist
