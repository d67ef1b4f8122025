// Runs doctest once on every rank of mpirun. Rank 0 reports in full, the others only what fails; a rank stops at its
// first failure, so that the others see it leave instead of waiting in a collective of the next case.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/mpi_world.h"

namespace cleave::test {

namespace {
dist::World* current_world = nullptr;
}

dist::World& mpi_world() { return *current_world; }

}  // namespace cleave::test

int main(int argc, char** argv) {
  int failed = 0;
  int code = cleave::dist::launch(argc, argv, [&](cleave::dist::World& world) {
    cleave::test::current_world = &world;
    doctest::Context context(argc, argv);
    context.setOption("abort-after", 1);
    context.setOption("minimal", world.rank() != 0);
    context.setOption("no-colors", true);
    failed = context.run();
  });
  return code != 0 ? code : failed;
}
