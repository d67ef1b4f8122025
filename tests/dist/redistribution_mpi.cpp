// Redistributions between MPI ranks: every pair of layouts of the meshes that fit.
#include <doctest/doctest.h>

#include "all_layouts.h"
#include "redistributed.h"
#include "support/mpi_world.h"

using namespace cleave;
using namespace cleave::dist;

TEST_CASE("every pair of layouts keeps the value under MPI") {
  World& world = test::mpi_world();
  int n = world.size();
  std::vector<std::vector<MeshAxis>> meshes{{{"a", n}}, {{"a", 1}, {"b", n}}};
  if (n == 4) meshes.push_back({{"a", 2}, {"b", 2}});
  int64_t cases = 0;
  for (const auto& axes : meshes) {
    DeviceMesh mesh(world, axes);
    for (Shape shape : {Shape{5, 3}, Shape{1, 2}, Shape{0, 3}}) {
      auto layouts = test::all_layouts(mesh, 2);
      for (Layout from : layouts)
        for (Layout to : layouts) {
          CHECK_NOTHROW(test::check_pair(shape, DType::f32, from, to));
          ++cases;
        }
    }
  }
  if (world.rank() == 0) MESSAGE(cases << " cases");
}

TEST_CASE("between meshes under MPI") {
  World& world = test::mpi_world();
  int n = world.size();
  DeviceMesh all(world, {{"a", n}}), last(world, {{"b", 1}}, {n - 1});
  for (Layout from : test::all_layouts(all, 2, false))
    for (Layout to : test::all_layouts(last, 2, false)) {
      CHECK_NOTHROW(test::check_pair({5, 3}, DType::bf16, from, to));
      CHECK_NOTHROW(test::check_pair({5, 3}, DType::i64, to, from));
    }
}
