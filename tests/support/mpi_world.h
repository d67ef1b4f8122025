// The ranks that a test named *_mpi.cpp runs on: all of its cases run on every rank of one mpirun.
#pragma once

#include <cleave/dist/launch.h>

namespace cleave::test {

// The world of this rank. Only for test_mpi.
dist::World& mpi_world();

}  // namespace cleave::test
