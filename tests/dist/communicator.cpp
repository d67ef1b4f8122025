// Collectives of thread ranks, alone and in groups.
#include "dist/collective_cases.h"

using namespace cleave;
using namespace cleave::test;

namespace {

void on_ranks(int n, const std::function<void(World&)>& f) {
  CAPTURE(n);
  run_ranks({.ranks = n}, f);
}

}  // namespace

TEST_CASE("every collective, dtype and size gives what a plain loop gives") {
  for (int n = 1; n <= 4; ++n) on_ranks(n, [](World& w) { check_collectives(w.communicator()); });
}

TEST_CASE("more ranks than cores stay live") {
  on_ranks(9, [](World& w) {
    for (int64_t count : {1, 100, 9000}) {
      std::vector<float> x(static_cast<size_t>(count), 1.0f);
      for (int k = 0; k < 20; ++k) w.communicator().all_reduce(x.data(), count, DType::f32, ReduceOp::max);
      CHECK(x[0] == 1.0f);
    }
    check_same_bits(w.communicator(), 5000);
  });
}

TEST_CASE("groups of some ranks, in any order, with calls under way on several") {
  for (int n = 1; n <= 4; ++n) on_ranks(n, check_groups);
}

TEST_CASE("a started call that nobody waits for is finished by its destructor") {
  on_ranks(3, [](World& w) {
    std::vector<float> x(50000, 1.0f);
    w.communicator().start({.kind = CollectiveKind::all_reduce, .send = nullptr, .recv = x.data(), .count = 50000});
    CHECK(x[49999] == 3.0f);
  });
}

TEST_CASE("an all_reduce may be started from one buffer into another") {
  on_ranks(2, [](World& w) {
    std::vector<double> x(3000, w.rank() + 1.0), y(3000);
    w.communicator()
        .start({.kind = CollectiveKind::all_reduce,
                .send = x.data(),
                .recv = y.data(),
                .count = 3000,
                .dtype = DType::f64})
        ->wait();
    CHECK(y[2999] == 3.0);
    CHECK(x[2999] == w.rank() + 1.0);
  });
}

TEST_CASE("calls that differ by rank throw on every rank and name both") {
  for (int n : {2, 3, 4}) on_ranks(n, check_disagreements);
}

TEST_CASE("all_to_all counts that do not match throw on every rank") { on_ranks(3, check_pair_counts); }

TEST_CASE("invalid arguments are refused before anything is sent") {
  on_ranks(2, [](World& w) {
    Communicator& c = w.communicator();
    float x[4] = {};
    std::vector<int64_t> one{2}, negative{2, -2};
    CHECK_THROWS_AS(c.all_gather(x, x, one, DType::f32), ValueError);
    CHECK_THROWS_AS(c.reduce_scatter(x, x, negative, DType::f32), ValueError);
    CHECK_THROWS_AS(c.broadcast(x, 1, DType::f32, 2), ValueError);
    CHECK_THROWS_AS(c.send(x, 1, DType::f32, -1), ValueError);
    CHECK_THROWS_AS(c.all_reduce(x, -1, DType::f32), ValueError);
    CHECK_THROWS_AS(w.make_communicator({0, 0, 1}, "twice"), ValueError);
    CHECK_THROWS_AS(w.make_communicator({0, 1, 2}, "large"), ValueError);
    CHECK_THROWS_AS(w.make_communicator({1 - w.rank()}, "foreign"), ValueError);
    c.barrier();
  });
}

TEST_CASE("traffic is counted by phase, axis and kind") {
  on_ranks(2, [](World& w) {
    auto tp = w.make_communicator({0, 1}, "tp");
    auto alone = w.make_communicator({w.rank()}, "one");
    std::vector<float> x(10), y(20);
    std::vector<int64_t> counts{4, 6};
    reset_comm_counts();
    record_collectives(true);
    alone->all_reduce(x.data(), 10, DType::f32);
    {
      PhaseScope phase("optimizer");
      tp->all_reduce(x.data(), 1, DType::f32);
    }
    {
      PhaseScope phase("backward");
      tp->reduce_scatter(x.data(), y.data(), counts, DType::f32);
    }
    tp->all_gather(x.data(), y.data(), counts, DType::f32, Device::Cpu, "weight");
    tp->all_gather(x.data(), y.data(), counts, DType::f32);
    w.communicator().barrier();
    if (w.rank() == 0)
      w.communicator().send(x.data(), 3, DType::f32, 1);
    else
      w.communicator().recv(x.data(), 3, DType::f32, 0);
    auto c = comm_counts();
    REQUIRE(c.size() == (w.rank() == 0 ? 4 : 3));
    CHECK(c[0].phase == "forward");
    CHECK(c[0].axis == "tp");
    CHECK(c[0].kind == CollectiveKind::all_gather);
    CHECK(c[0].bytes == 2 * 4 * counts[static_cast<size_t>(w.rank())]);
    CHECK(c[0].count == 2);
    CHECK(c[0].seconds > 0);
    size_t i = 1;
    if (w.rank() == 0) {
      CHECK(c[i].kind == CollectiveKind::send_recv);
      CHECK(c[i++].bytes == 12);
    }
    CHECK(c[i].phase == "backward");
    CHECK(c[i++].bytes == 40);
    CHECK(c[i].phase == "optimizer");
    CHECK(c[i].bytes == 4);
    auto events = recorded_collectives();
    REQUIRE(events.size() == (w.rank() == 0 ? 5 : 4));
    CHECK(events[2].label == "weight");
    CHECK(std::string(events[1].phase) == "backward");
    reset_comm_counts();
    CHECK(comm_counts().empty());
  });
}
