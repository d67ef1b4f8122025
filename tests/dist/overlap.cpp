// Calls that go on while the rank computes: order, counts, errors, and how a world ends with some of them under way.
#include "dist/collective_cases.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr LaunchOptions overlapped(int ranks) { return {.ranks = ranks, .overlap = Overlap::on}; }

std::unique_ptr<Communicator> behind(World& w) {
  std::vector<int> all(static_cast<size_t>(w.size()));
  std::iota(all.begin(), all.end(), 0);
  return w.make_background_communicator(all, "world");
}

Collective all_reduce(std::vector<float>& x, const char* label = "") {
  return {
      .kind = CollectiveKind::all_reduce, .recv = x.data(), .count = static_cast<int64_t>(x.size()), .label = label};
}

}  // namespace

TEST_CASE("started calls give what blocking ones give, whatever is called meanwhile and however they are waited for") {
  for (int n : {1, 2, 4})
    run_ranks(overlapped(n), [&](World& w) {
      CHECK(w.overlaps() == (n > 1));
      auto back = behind(w), pair = w.make_background_communicator({w.rank()}, "one");
      std::vector<std::vector<float>> x(20), y;
      for (size_t k = 0; k < x.size(); ++k) {
        x[k].resize(1 + 997 * k);
        for (size_t i = 0; i < x[k].size(); ++i) x[k][i] = 0.1f * static_cast<float>((i + 1) * (k + 2) % 89 + w.rank());
      }
      y = x;
      std::vector<std::unique_ptr<Pending>> started;
      for (size_t k = 0; k < x.size(); ++k) {
        started.push_back(back->start(all_reduce(x[k])));
        w.communicator().call(all_reduce(y[k]));
        if (k % 3 == 2) started[k - 1]->wait();
      }
      for (size_t k = x.size(); k-- > 0;) {
        started[k]->wait();
        started[k]->wait();  // once more is nothing
        CHECK(x[k] == y[k]);
      }
      // Counts and labels need not outlive the start.
      std::vector<double> mine(3, w.rank()), all(3 * static_cast<size_t>(n));
      std::unique_ptr<Pending> gather;
      {
        std::vector<int64_t> counts(static_cast<size_t>(n), 3);
        std::string label = "some label";
        gather = back->start({.kind = CollectiveKind::all_gather,
                              .send = mine.data(),
                              .recv = all.data(),
                              .recv_counts = counts,
                              .dtype = DType::f64,
                              .label = label.c_str()});
      }
      gather->wait();
      for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<double>(i / 3));
    });
}

TEST_CASE("counts and phases are the rank's, at the start of a call") {
  run_ranks(overlapped(2), [](World& w) {
    auto back = behind(w);
    reset_comm_counts();
    record_collectives(true);
    std::vector<float> x(10), y(20), z(30);
    std::unique_ptr<Pending> a;
    {
      PhaseScope phase("backward");
      a = back->start(all_reduce(x, "first"));
    }
    auto b = back->start(all_reduce(y, "second"));
    w.communicator().call(all_reduce(z, "third"));
    a->wait();
    b->wait();
    auto events = recorded_collectives();
    REQUIRE(events.size() == 3);
    CHECK(events[0].label == "first");
    CHECK(std::string(events[0].phase) == "backward");
    CHECK(events[1].label == "second");
    CHECK(events[2].label == "third");
    int64_t bytes = 0;
    for (const CommCount& c : comm_counts()) bytes += c.bytes;
    CHECK(bytes == 4 * 60);
    for (const CommCount& c : comm_counts()) CHECK(c.axis == "world");
  });
}

TEST_CASE("a call that is dropped has ended: its buffers are free") {
  run_ranks(overlapped(2), [](World& w) {
    auto back = behind(w);
    for (int k = 0; k < 50; ++k) {
      std::vector<float> x(5000, 1.0f);
      auto dropped = back->start(all_reduce(x));
    }
    std::vector<float> y(10);
    back->start(all_reduce(y));
  });
}

TEST_CASE("bytes under way are bounded") {
  using namespace std::chrono;
  run_ranks({.ranks = 2, .overlap = Overlap::on, .link = {.latency = 0.5}}, [](World& w) {
    auto back = behind(w);
    std::vector<float> x(4 << 20), y(4 << 20), small(10);
    auto start = steady_clock::now();
    auto a = back->start(all_reduce(x)), c = back->start(all_reduce(small));
    CHECK(duration<double>(steady_clock::now() - start).count() < 0.4);
    auto b = back->start(all_reduce(y));  // twice 16 MB do not go together
    CHECK(duration<double>(steady_clock::now() - start).count() >= 0.5);
  });
}

TEST_CASE("a slow link takes its time, and hides behind other work") {
  using namespace std::chrono;
  run_ranks({.ranks = 2, .overlap = Overlap::on, .link = {.latency = 0.02, .bandwidth = 1e5}}, [](World& w) {
    auto back = behind(w);
    std::vector<float> x(5000);
    auto start = steady_clock::now();
    auto seconds = [&] { return duration<double>(steady_clock::now() - start).count(); };
    w.communicator().call(all_reduce(x));
    CHECK(seconds() >= 0.22);
    auto a = back->start(all_reduce(x));
    std::this_thread::sleep_for(milliseconds(400));
    start = steady_clock::now();
    a->wait();
    CHECK(seconds() < 0.2);
  });
}

TEST_CASE("what a started call throws comes from its wait, every time") {
  run_ranks(overlapped(2), [](World& w) {
    auto back = behind(w);
    std::vector<float> x(10);
    auto bad = back->start({.kind = CollectiveKind::all_reduce, .recv = x.data(), .count = 10 - w.rank()});
    CHECK(has(message_of<CommError>([&] { bad->wait(); }), "ranks disagree in call 1"));
    CHECK(has(message_of<CommError>([&] { bad->wait(); }), "rank 1 calls all_reduce of 9 f32"));
    auto good = back->start(all_reduce(x));
    good->wait();
    CHECK_THROWS_AS(back->start({.kind = CollectiveKind::all_reduce, .count = -1}), ValueError);
  });
  // Nobody waits for it: it comes as the function returns.
  CHECK(has(message_of<CommError>([] {
              run_ranks(overlapped(2), [](World& w) {
                auto back = behind(w);
                std::vector<float> x(10);
                back->start({.kind = CollectiveKind::all_reduce, .recv = x.data(), .count = 10 - w.rank()});
              });
            }),
            "ranks disagree in call 1"));
}

TEST_CASE("a rank that fails with calls under way ends the others with PeerError, wherever they are") {
  using namespace std::chrono;
  for (int n : {2, 4})
    for (int where = 0; where < 4; ++where) {
      CAPTURE(where);
      std::atomic<int> peers{0};
      auto start = steady_clock::now();
      std::string text = message_of<IndexError>([&] {
        run_ranks(overlapped(n), [&](World& w) {
          auto back = behind(w);
          std::vector<float> x(50000), y(50000), z(10);
          try {
            for (int step = 0;; ++step) {
              bool fails = step == 3 && w.rank() == 1;
              if (fails && where == 0) throw IndexError("token 9 is out of range");
              auto a = back->start(all_reduce(x));
              if (fails && where == 1) throw IndexError("token 9 is out of range");
              w.communicator().call(all_reduce(z));
              auto b = back->start(all_reduce(y));
              if (fails && where == 2) throw IndexError("token 9 is out of range");
              a->wait();
              if (fails && where == 3) throw IndexError("token 9 is out of range");
              b->wait();
            }
          } catch (const PeerError& e) {
            CHECK(e.rank == 1);
            CHECK(std::string(e.what()) == "rank 1 failed: token 9 is out of range");
            ++peers;
            throw;
          }
        });
      });
      CHECK(text == "token 9 is out of range");
      CHECK(peers == n - 1);
      CHECK(duration<double>(steady_clock::now() - start).count() < 10);
    }
}

TEST_CASE("a rank that returned is missed by calls under way") {
  std::string text = message_of<PeerError>([] {
    run_ranks(overlapped(2), [](World& w) {
      auto back = behind(w);
      std::vector<float> x(10);
      auto a = back->start(all_reduce(x, "both"));
      if (w.rank() == 1) return;
      a->wait();
      back->start(all_reduce(x, "alone"))->wait();
    });
  });
  CHECK(has(text, "rank 1 returned while rank 0 was in all_reduce 'alone' on world (in the background)"));
}
