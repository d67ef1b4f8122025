// Collectives of MPI ranks, alone and in groups, with and without checked mode.
#include "dist/collective_cases.h"
#include "support/mpi_world.h"

#include <cleave/core/parallel.h>
#include <cleave/dist/mpi/hosts.h>

#include <cstdlib>

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

TEST_CASE("ranks of one host share memory, those of several send messages") {
  World& w = mpi_world();
  const char* text = std::getenv("CLEAVE_HOSTS");  // hosts_mpi.sh
  std::vector<int> host(static_cast<size_t>(w.size()), 0), all(host.size());
  if (text) host = dist::detail::parse_hosts(text, w.size());
  std::iota(all.begin(), all.end(), 0);
  CHECK(w.communicator().gains_by_shared_buffers() == dist::detail::on_one_host(host, all));
  for (int distance = 1; distance < w.size(); distance *= 2) {
    int partner = w.rank() ^ distance;
    if (partner >= w.size()) continue;
    auto pair = w.make_communicator({std::min(w.rank(), partner), std::max(w.rank(), partner)}, "pair");
    bool together = host[static_cast<size_t>(w.rank())] == host[static_cast<size_t>(partner)];
    CHECK(pair->gains_by_shared_buffers() == together);
    check_same_bits(*pair, 50000);
  }
}

TEST_CASE("a map of hosts has one number for each rank") {
  CHECK(dist::detail::parse_hosts("0,3,3", 3) == std::vector<int>{0, 3, 3});
  for (const char* bad : {"", "0,1", "0,1,1,", "0;1;1", "0,1,1,2", "0,,1"})
    CHECK_THROWS_AS(dist::detail::parse_hosts(bad, 3), ValueError);
  std::vector<int> hosts{0, 0, 1, 0};
  CHECK(dist::detail::on_one_host(hosts, std::vector<int>{0, 1, 3}));
  CHECK(!dist::detail::on_one_host(hosts, std::vector<int>{2, 3}));
}

TEST_CASE("shared buffers are used again, keep what they hold, and serve every communicator") {
  World& w = mpi_world();
  std::vector<int> all(static_cast<size_t>(w.size()));
  std::iota(all.begin(), all.end(), 0);
  auto other = w.make_communicator(all, "other");
  void* first = nullptr;
  for (int k = 0; k < 3; ++k) {
    auto buffer = w.communicator().shared_buffer(400000);
    if (k == 0) first = buffer.get();
    if (w.communicator().gains_by_shared_buffers()) CHECK(buffer.get() == first);
    CHECK(reinterpret_cast<size_t>(buffer.get()) % 64 == 0);
    auto* x = static_cast<float*>(buffer.get());
    std::fill(x, x + 100000, 1.0f);
    (k % 2 ? *other : w.communicator()).all_reduce(x, 100000, DType::f32);
    w.communicator().all_reduce(x + 50001, 40000, DType::f32);  // a part of it
    float n = static_cast<float>(w.size());
    CHECK(x[0] == n);
    CHECK(x[50000] == n);
    CHECK(x[50001] == n * n);
    CHECK(x[90000] == n * n);
    CHECK(x[99999] == n);
  }
}
