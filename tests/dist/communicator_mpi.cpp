// Collectives of MPI ranks, alone and in groups, with and without checked mode.
#include "dist/collective_cases.h"
#include "support/mpi_world.h"

#include <cleave/core/parallel.h>

using namespace cleave;
using namespace cleave::test;

TEST_CASE("every collective, dtype and size gives what a plain loop gives under MPI") {
  check_collectives(mpi_world().communicator());
}

TEST_CASE("the same in checked mode, and calls that differ throw on every rank") {
  World& w = mpi_world();
  CHECK(!checked_mode());
  set_checked_mode(true);
  check_collectives(w.communicator());
  check_disagreements(w);
  check_pair_counts(w);
  set_checked_mode(false);
}

TEST_CASE("groups of some MPI ranks, in any order, with calls under way on several") { check_groups(mpi_world()); }

TEST_CASE("communicators made in another order are refused") {
  World& w = mpi_world();
  w.communicator().barrier();
  std::string text = message_of<CommError>([&] {
    std::vector<int> all(static_cast<size_t>(w.size()));
    std::iota(all.begin(), all.end(), 0);
    w.make_communicator(all, w.rank() == 0 ? "dp" : "tp");
  });
  CHECK(has(text, "in the same order"));
  std::vector<int> pair{0, 1}, alone{w.rank()};
  auto after = w.make_communicator(w.rank() < 2 ? pair : alone, "after");
  after->barrier();
}

TEST_CASE("a large buffer goes in parts of at most one message") {
  World& w = mpi_world();
  std::vector<float> x(3000001, 0.5f + static_cast<float>(w.rank()));
  w.communicator().all_reduce(x.data(), 3000001, DType::f32, ReduceOp::max);
  CHECK(x[3000000] == static_cast<float>(w.size()) - 0.5f);
}

TEST_CASE("an MPI rank knows its place") {
  World& w = mpi_world();
  CHECK(std::string(w.backend()) == "mpi");
  CHECK(w.local_size() == w.size());
  int32_t threads[] = {num_threads(), -num_threads()};
  w.communicator().all_reduce(threads, 2, DType::i32, ReduceOp::max);
  CHECK(threads[0] == -threads[1]);
  std::vector<float> x(10);
  reset_comm_counts();
  w.communicator().all_reduce(x.data(), 10, DType::f32);
  w.communicator().all_reduce(nullptr, 10, DType::f32, ReduceOp::sum, Device::Meta);
  REQUIRE(comm_counts().size() == 1);
  CHECK(comm_counts()[0].bytes == 80);
}
