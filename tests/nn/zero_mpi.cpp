// ZeRO over MPI ranks: the training of one device.
#include "nn/zero_support.h"
#include "support/mpi_world.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("stages 0 to 3 and hybrid sharding on MPI ranks are the training of one device") {
  dist::World& world = mpi_world();
  int n = world.size();
  std::vector<ZeroCase> cases;
  for (int stage = 0; stage <= 3; ++stage)
    cases.push_back({"stage " + std::to_string(stage), {{"dp", n}}, stage, {"dp"}, "dp"});
  if (n % 2 == 0) cases.push_back({"hybrid", {{"rep", n / 2}, {"shard", 2}}, 3, {"shard"}, "rep.shard"});
  for (int micro_batches : {1, 3}) {
    Values want = train_odd({}, nullptr, micro_batches, 3);
    for (const ZeroCase& c : cases) {
      CAPTURE(c.name);
      CHECK(relative_distance(train_odd(c, &world, micro_batches, 3), want) < 1e-10);
    }
  }
}
