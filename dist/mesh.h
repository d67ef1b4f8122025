// DeviceMesh: the ranks of a program as a grid with named axes.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <cleave/dist/layout.h>

namespace cleave::dist {

class World;
class Communicator;

struct MeshAxis {
  std::string name;
  int size = 1;
};

/// A grid of ranks, row-major (the last axis varies fastest). A handle; equal meshes of one World are one mesh. Every
/// rank of the World constructs every mesh, also those it is no member of.
class DeviceMesh {
 public:
  /// Over all ranks of the world in order. Throws LayoutError if the sizes do not multiply to the number of ranks, or a
  /// name is empty, repeated, or not letters, digits and underscores starting with a letter.
  DeviceMesh(World& world, const std::vector<MeshAxis>& axes);
  /// Over the given world ranks.
  DeviceMesh(World& world, const std::vector<MeshAxis>& axes, const std::vector<int>& ranks);
  explicit DeviceMesh(const MeshState* state) : state_(state) {}

  int axes() const;
  int size() const;
  /// Throws LayoutError for an axis that the mesh lacks; so does `coordinate`.
  int size(std::string_view axis) const;
  const std::string& name(int axis) const;
  /// Whether this rank is a member.
  bool contains_self() const;
  /// This rank's position along the axis; -1 if it is no member.
  int coordinate(std::string_view axis) const;

  /// Reads a layout: by dim the axes that split it, `.` between several (major first), `-` for none, `...` for any
  /// number of unsplit dims, then `partial(axis, ...)`. "" or "..." is a scalar's. Throws LayoutError for an axis that
  /// the mesh lacks or that is used twice, and for bad syntax.
  Layout layout(std::string_view text) const;
  /// The replicated layout of `rank` dims.
  Layout replicated(int rank) const;

  /// The part of this mesh with `axis` fixed at `coordinate`: a mesh of the other axes, e.g. one pipeline stage.
  DeviceMesh at(std::string_view axis, int coordinate) const;
  /// The mesh of the named axes that contains this rank (its coordinates on the other axes fixed).
  DeviceMesh sub(const std::vector<std::string>& axes) const;

  const MeshState* state() const { return state_; }
  friend bool operator==(DeviceMesh, DeviceMesh) = default;

 private:
  const MeshState* state_;
};

/// "mesh(dp=2, tp=4)".
std::string to_string(DeviceMesh mesh);

}  // namespace cleave::dist
