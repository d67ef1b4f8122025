// The profiler over MPI ranks, whose clocks and memories are apart.
#include "nn/profile_cases.h"
#include "support/mpi_world.h"

#include <filesystem>

using namespace cleave;

TEST_CASE("a run on MPI ranks: same bits, times that add up, work and traffic as computed, one trace") {
  dist::World& world = test::mpi_world();
  std::string path =
      (std::filesystem::temp_directory_path() / ("trace_mpi." + std::to_string(world.size()) + ".json")).string();
  test::check_profile(world, path);
  if (world.rank() == 0) std::filesystem::remove(path);
}
