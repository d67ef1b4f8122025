// The body behind a DeviceMesh: coordinates, interned layouts, communicators by set of axes.
#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::dist {

namespace {

size_t hash(const LayoutData& data) {
  uint64_t h = static_cast<uint64_t>(data.rank) * 31 + static_cast<uint64_t>(data.ellipsis + 1);
  auto mix = [&h](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15u, h ^= h >> 32; };
  mix(data.partial | (static_cast<uint64_t>(data.op) << 32));
  for (int d = 0; d < data.rank; ++d) {
    mix(static_cast<uint64_t>(data.dims[static_cast<size_t>(d)].size()));
    for (int a : data.dims[static_cast<size_t>(d)]) mix(static_cast<uint64_t>(a));
  }
  return static_cast<size_t>(h);
}

bool equal(const LayoutData& a, const LayoutData& b) {
  return a.rank == b.rank && a.ellipsis == b.ellipsis && a.partial == b.partial && a.op == b.op && a.dims == b.dims;
}

}  // namespace

MeshState::MeshState(World& world, std::vector<MeshAxis> axes, std::vector<int> ranks)
    : world_(world), axes_(std::move(axes)), ranks_(std::move(ranks)) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i] != world.rank()) continue;
    member_ = true;
    coordinates_ = coordinates_of(static_cast<int>(i));
  }
}

MeshState::~MeshState() = default;

int64_t MeshState::size_of(AxisMask mask) const {
  int64_t n = 1;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (mask & axis_bit(static_cast<int>(a))) n *= axes_[a].size;
  return n;
}

std::array<int, kMaxAxes> MeshState::coordinates_of(int index) const {
  std::array<int, kMaxAxes> c{};
  for (size_t a = axes_.size(); a-- > 0;) {
    c[a] = index % axes_[a].size;
    index /= axes_[a].size;
  }
  return c;
}

int MeshState::index_of(const std::array<int, kMaxAxes>& coordinates) const {
  int index = 0;
  for (size_t a = 0; a < axes_.size(); ++a) index = index * axes_[a].size + coordinates[a];
  return index;
}

int MeshState::axis(std::string_view name) const {
  std::string names;
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].name == name) return static_cast<int>(a);
    names += (a ? ", " : "") + axes_[a].name;
  }
  throw LayoutError(to_string(DeviceMesh(this)) + " has no axis " + std::string(name) + "; its axes are " + names);
}

const LayoutData* MeshState::intern(const LayoutData& content) const {
  LayoutData data = content;
  data.mesh = this;
  if (data.partial == 0) data.op = ReduceOp::sum;
  for (size_t d = static_cast<size_t>(data.rank); d < data.dims.size(); ++d) data.dims[d] = AxisList{};
  size_t key = hash(data);
  auto [first, last] = layouts_.equal_range(key);
  for (auto it = first; it != last; ++it)
    if (equal(*it->second, data)) return it->second.get();
  return layouts_.emplace(key, std::make_unique<LayoutData>(data))->second.get();
}

std::vector<std::array<int, kMaxAxes>> MeshState::group(AxisMask mask) const {
  std::vector<std::array<int, kMaxAxes>> members(1, coordinates_);
  for (size_t a = axes_.size(); a-- > 0;) {
    if (!(mask & axis_bit(static_cast<int>(a)))) continue;
    std::vector<std::array<int, kMaxAxes>> wider;
    for (int i = 0; i < axes_[a].size; ++i)
      for (auto c : members) {
        c[a] = i;
        wider.push_back(c);
      }
    members = std::move(wider);
  }
  return members;
}

std::vector<int> MeshState::world_ranks(AxisMask mask) const {
  std::vector<int> ranks;
  for (const auto& c : group(mask)) ranks.push_back(ranks_[static_cast<size_t>(index_of(c))]);
  return ranks;
}

Communicator& MeshState::communicator(AxisMask mask) const {
  auto& slot = communicators_[mask];
  if (!slot) slot = world_.make_communicator(world_ranks(mask), axis_names(mask));
  return *slot;
}

Communicator& MeshState::background(AxisMask mask) const {
  auto& slot = background_[mask];
  if (!slot) slot = world_.make_background_communicator(world_ranks(mask), axis_names(mask));
  return *slot;
}

std::string MeshState::axis_names(AxisMask mask) const {
  std::string out;
  for (size_t a = 0; a < axes_.size(); ++a)
    if (mask & axis_bit(static_cast<int>(a))) out += (out.empty() ? "" : ".") + axes_[a].name;
  return out;
}

}  // namespace cleave::dist
