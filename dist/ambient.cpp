#include <cleave/dist/ambient.h>

#include <utility>

namespace cleave::dist {
namespace {
thread_local const MeshState* ambient = nullptr;
}

UseMesh::UseMesh(const MeshState* state) : before_(std::exchange(ambient, state)) {}
UseMesh::~UseMesh() { ambient = before_; }
const MeshState* ambient_mesh() { return ambient; }

}  // namespace cleave::dist
