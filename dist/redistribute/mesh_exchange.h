// Who sends what to whom between two meshes of one world.
#pragma once
#include <vector>

#include <cleave/dist/mesh_state.h>

namespace cleave::dist::steps {

/// Each element goes once to every rank that holds it afterwards, from a rank that held it before: the receiver itself
/// where it can be, else the replicas in turn. A function of global metadata.
class MeshExchange {
 public:
  MeshExchange(const Shape& global, const LayoutData& from, const LayoutData& to);

  /// World ranks of either mesh, ascending.
  const std::vector<int>& ranks() const { return ranks_; }
  /// The overlap that one world rank sends to another, in global coordinates; sizes of 0 if there is none.
  Box piece(int sender, int receiver) const;
  /// Elements that the busiest rank sends.
  int64_t busiest() const;

 private:
  bool sends(int from_index, int receiver, int to_index) const;

  const LayoutData &from_, &to_;
  std::vector<int> ranks_;
  std::vector<int> from_index_, to_index_;  // by world rank; -1: no member
  std::vector<Box> from_box_, to_box_;      // by index in the mesh
  int rank_of_tensor_;
};

}  // namespace cleave::dist::steps
