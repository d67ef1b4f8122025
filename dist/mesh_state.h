// The body behind a DeviceMesh: interned layouts and communicators by set of axes. For the library's own floors.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include <cleave/dist/communicator.h>
#include <cleave/dist/mesh.h>

namespace cleave::dist {

/// Per rank; owned by the World. Logically constant: the members that change are caches.
class MeshState {
 public:
  MeshState(World& world, std::vector<MeshAxis> axes, std::vector<int> ranks);
  ~MeshState();

  World& world() const { return world_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(int axis) const { return axes_[static_cast<size_t>(axis)].size; }
  /// Product of the sizes of a set of axes.
  int64_t size_of(AxisMask mask) const;
  const std::vector<int>& ranks() const { return ranks_; }
  bool member() const { return member_; }
  /// This rank's coordinates; zeros if it is no member.
  const std::array<int, kMaxAxes>& coordinates() const { return coordinates_; }
  /// Whether this rank is the first along all of these axes: the one that keeps the value of a tensor made partial on
  /// them.
  bool is_first(AxisMask axes) const {
    for (size_t a = 0; axes >> a; ++a)
      if ((axes >> a & 1) && coordinates_[a] != 0) return false;
    return true;
  }
  std::array<int, kMaxAxes> coordinates_of(int index) const;  ///< of the index-th rank of the mesh
  int index_of(const std::array<int, kMaxAxes>& coordinates) const;
  /// Coordinates of the ranks of `communicator(mask)`, in its order.
  std::vector<std::array<int, kMaxAxes>> group(AxisMask mask) const;
  /// Index of an axis; throws LayoutError "mesh(dp=2, tp=4) has no axis dq; its axes are dp, tp".
  int axis(std::string_view name) const;
  AxisMask all_axes() const { return (AxisMask{1} << axes_.size()) - 1; }

  const LayoutData* intern(const LayoutData& content) const;

  /// The communicator of the ranks that differ from this one on the axes of `mask` only, ordered row-major by those
  /// axes in mesh order. Made at first use, by its members. Members only.
  Communicator& communicator(AxisMask mask) const;
  /// The same ranks, for calls that go on while this rank computes: see World::make_background_communicator.
  Communicator& background(AxisMask mask) const;
  /// "tp", "dp.tp".
  std::string axis_names(AxisMask mask) const;

  /// Room for caches of other files (plans), keyed by an address of theirs.
  std::shared_ptr<void>& cache(const void* key) const { return caches_[key]; }

 private:
  std::vector<int> world_ranks(AxisMask mask) const;  // of communicator(mask)
  World& world_;
  std::vector<MeshAxis> axes_;
  std::vector<int> ranks_;
  bool member_ = false;
  std::array<int, kMaxAxes> coordinates_{};
  mutable std::unordered_multimap<size_t, std::unique_ptr<LayoutData>> layouts_;
  mutable std::map<AxisMask, std::unique_ptr<Communicator>> communicators_, background_;
  mutable std::unordered_map<const void*, std::shared_ptr<void>> caches_;
};

namespace detail {
/// "partial(pp, tp)", "partial(max: tp)"; "" if no axis is partial.
std::string partial_text(const LayoutData& data);
}  // namespace detail

}  // namespace cleave::dist
