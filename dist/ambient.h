// The ambient mesh: where creation functions without a layout put their tensors.
#pragma once
#include <cleave/dist/mesh.h>

namespace cleave::dist {

/// While it lives, creation functions of this rank without a layout return R tensors on `mesh`. A null state means
/// plain tensors again.
class UseMesh {
 public:
  explicit UseMesh(DeviceMesh mesh) : UseMesh(mesh.state()) {}
  explicit UseMesh(const MeshState* state);
  ~UseMesh();
  UseMesh(const UseMesh&) = delete;
  UseMesh& operator=(const UseMesh&) = delete;

 private:
  const MeshState* before_;
};

/// The ambient mesh of this rank, or null.
const MeshState* ambient_mesh();

}  // namespace cleave::dist
