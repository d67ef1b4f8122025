// Thread ranks: how errors, early returns, signals and options reach all of them.
#include "dist/collective_cases.h"

#include <cleave/core/allocator.h>
#include <cleave/core/parallel.h>
#include <cleave/core/random.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/mesh.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/creation.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <thread>

#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  return argv;
}

/// What `f` writes to stderr.
std::string captured_stderr(const std::function<void()>& f) {
  std::fflush(stderr);
  FILE* file = std::tmpfile();
  int before = dup(2);
  dup2(fileno(file), 2);
  f();
  std::fflush(stderr);
  dup2(before, 2);
  close(before);
  std::string text(1 << 16, 0);
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

int launch_words(std::vector<std::string> words, const std::function<void(World&)>& f) {
  auto argv = pointers(words);
  return launch(static_cast<int>(argv.size()), argv.data(), f);
}

}  // namespace

TEST_CASE("launch takes --ranks out of the arguments and leaves the others") {
  for (std::vector<std::string> words :
       {std::vector<std::string>{"prog", "a", "--ranks", "3", "b", "--", "--ranks", "x"},
        {"prog", "a", "b", "--ranks=3", "--", "--ranks", "x"}}) {
    auto argv = pointers(words);
    std::atomic<int> ranks{0};
    CHECK(launch(static_cast<int>(argv.size()), argv.data(), [&](World& w) {
            ++ranks;
            CHECK(w.size() == 3);
            CHECK(w.local_size() == 3);
            CHECK(std::string(w.backend()) == "threads");
            CHECK(w.arguments() == std::vector<std::string>{"a", "b", "--", "--ranks", "x"});
            CHECK(World::current() == &w);
          }) == 0);
    CHECK(ranks == 3);
    CHECK(std::string(argv[2]) == "b");
    CHECK(std::string(argv[argv.size() - 1]) == (argv.size() == 8 ? "3" : "--ranks=3"));
  }
  CHECK(World::current() == nullptr);
  CHECK(launch_words({"prog"}, [](World& w) {
          CHECK(w.size() == 1);
          CHECK(std::string(w.backend()) == "self");
        }) == 0);
}

TEST_CASE("a bad --ranks is an error that says what to give") {
  for (const char* bad : {"0", "two", "-1", ""}) {
    int code = 0;
    std::string text = captured_stderr([&] {
      code = launch_words({"prog", "--ranks", bad}, [](World&) { FAIL("ran"); });
    });
    CHECK(code == 1);
    CHECK(has(text, "--ranks must be a number from 1"));
  }
  CHECK(has(captured_stderr([&] { launch_words({"prog", "--ranks"}, [](World&) {}); }), "--ranks must be"));
}

TEST_CASE("launch takes --overlap, on, off or auto, out of the arguments") {
  auto overlaps = [](std::vector<std::string> words) {
    std::atomic<int> n{-1};
    CHECK(launch_words(std::move(words), [&](World& w) {
            if (w.rank() == 0) n = w.overlaps();
            CHECK(w.arguments() == std::vector<std::string>{"a"});
          }) == 0);
    return n.load();
  };
  CHECK(overlaps({"prog", "a", "--ranks", "2"}) == 0);
  CHECK(overlaps({"prog", "--ranks", "2", "a", "--overlap"}) == 1);
  CHECK(overlaps({"prog", "--ranks", "2", "--overlap", "a"}) == 1);
  CHECK(overlaps({"prog", "--ranks", "2", "--overlap", "off", "a"}) == 0);
  CHECK(overlaps({"prog", "--overlap=on", "--ranks", "2", "a"}) == 1);
  CHECK(overlaps({"prog", "--overlap", "a"}) == 0);  // a rank alone has nothing to wait for
  CHECK(has(captured_stderr([&] {
              launch_words({"prog", "--overlap=maybe"}, [](World&) {});
            }),
            "--overlap must be on, off or auto, not 'maybe'"));
}

TEST_CASE("an exception on one rank ends the others with PeerError") {
  for (int n : {2, 4}) {
    std::atomic<int> peers{0};
    std::string text = message_of<IndexError>([&] {
      run_ranks({.ranks = n}, [&](World& w) {
        std::vector<float> x(100000);
        w.communicator().all_reduce(x.data(), 100000, DType::f32);
        if (w.rank() == 1) throw IndexError("token 9 is out of range");
        auto group = w.rank() ? nullptr : w.make_communicator({0}, "one");
        try {
          for (;;) w.communicator().all_reduce(x.data(), 100000, DType::f32);
        } catch (const PeerError& e) {
          CHECK(e.rank == 1);
          CHECK(std::string(e.what()) == "rank 1 failed: token 9 is out of range");
          ++peers;
          CHECK_THROWS_AS(w.communicator().barrier(), PeerError);  // and so does the next
          throw;
        }
      });
    });
    CHECK(text == "token 9 is out of range");
    CHECK(peers == n - 1);
  }
}

TEST_CASE("a rank that returned early is announced, also to those who wait for others") {
  std::atomic<int> peers{0};
  std::string text = message_of<PeerError>([&] {
    run_ranks({.ranks = 3}, [&](World& w) {
      auto pair = w.rank() < 2 ? w.make_communicator({0, 1}, "pair") : w.make_communicator({2}, "one");
      w.communicator().barrier();
      if (w.rank() == 1) return;
      float x = 1;
      try {
        if (w.rank() == 0)
          pair->all_reduce(&x, 1, DType::f32, ReduceOp::sum, Device::Cpu, "norm");
        else
          w.communicator().recv(&x, 1, DType::f32, 0);
      } catch (const PeerError& e) {
        ++peers;
        CHECK(e.rank == 1);
        CHECK(std::string(e.what()) == "rank 1 returned while rank 0 was in all_reduce 'norm' on pair (call 1)");
        throw;
      }
    });
  });
  CHECK(peers == 2);
  CHECK(has(text, "rank 1 returned"));
}

TEST_CASE("ranks that return at different times after their last collective are no error") {
  for (int k = 0; k < 50; ++k)
    run_ranks({.ranks = 4}, [&](World& w) {
      float x = 1;
      w.communicator().all_reduce(&x, 1, DType::f32);
      std::vector<float> y(5000);
      w.communicator().all_reduce(y.data(), 5000, DType::f32);
      if (w.rank() == k % 4) std::this_thread::sleep_for(std::chrono::microseconds(300));
    });
}

TEST_CASE("buffers of a rank that failed are free to go while others still hold started calls") {
  constexpr int64_t kLarge = 500000;  // so that others are still reading when one leaves
  for (int k = 0; k < 20; ++k)
    CHECK_THROWS_AS(
        run_ranks({.ranks = 4},
                  [&](World& w) {
                    auto pair = w.make_communicator({w.rank() & 2, (w.rank() & 2) + 1}, "pair");
                    for (int step = 0;; ++step) {
                      std::vector<float> x(kLarge, 1.0f), y(kLarge, 1.0f);
                      auto a = w.communicator().start(
                          {.kind = CollectiveKind::all_reduce, .send = nullptr, .recv = x.data(), .count = kLarge});
                      if (step == 3 && w.rank() == k % 4) throw ValueError("stop");
                      auto b = pair->start(
                          {.kind = CollectiveKind::all_reduce, .send = nullptr, .recv = y.data(), .count = kLarge});
                      if (w.rank() % 2)
                        b->wait(), a->wait();
                      else
                        a->wait();
                    }
                  }),
        ValueError);
}

TEST_CASE("launch prints every rank's error once and returns 1") {
  int code = 0;
  std::string text = captured_stderr([&] {
    code = launch_words({"prog", "--ranks", "3"}, [](World& w) {
      if (w.rank() == 2) throw ValueError("no such file");
      w.communicator().barrier();
    });
  });
  CHECK(code == 1);
  CHECK(has(text, "rank 2: no such file\n"));
  CHECK(has(text, "rank 0: rank 2 failed: no such file\n"));
  CHECK(has(text, "rank 1: rank 2 failed: no such file\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
}

TEST_CASE("a signal raises Interrupted on every rank, and the handlers go back") {
  struct sigaction before, after;
  sigaction(SIGINT, nullptr, &before);
  std::atomic<int> interrupted{0};
  std::string text = captured_stderr([&] {
    int code = launch_words({"prog", "--ranks", "3"}, [&](World& w) {
      try {
        w.communicator().barrier();
        if (w.rank() == 0) std::raise(SIGINT);
        if (w.rank() == 1)
          for (;;) check_interrupt();
        for (float x = 1;;) w.communicator().all_reduce(&x, 1, DType::f32);
      } catch (const Interrupted&) {
        ++interrupted;
        throw;
      }
    });
    CHECK(code == 1);
  });
  CHECK(interrupted == 3);
  CHECK(has(text, "rank 1: interrupted (SIGINT)"));
  sigaction(SIGINT, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
  CHECK_NOTHROW(check_interrupt());
}

TEST_CASE("the watchdog says once who waits where, and the wait goes on") {
  std::string text = captured_stderr([&] {
    run_ranks({.ranks = 3, .watchdog = 0.4}, [](World& w) {
      float x = 1;
      if (w.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2000));
        w.communicator().send(&x, 1, DType::f32, 1);
      }
      if (w.rank() == 1) w.communicator().recv(&x, 1, DType::f32, 0);
      w.communicator().all_reduce(&x, 1, DType::f32, ReduceOp::sum, Device::Cpu, "grads");
      CHECK(x == 3);
    });
  });
  CAPTURE(text);
  CHECK(has(text, "[watchdog] rank 1 has waited "));
  CHECK(has(text, " s in send_recv 'recv' on world for rank 0: rank 0 waits in no collective"));
  CHECK(has(text, "[watchdog] rank 2 has waited "));
  CHECK(has(text, " s in all_reduce 'grads' on world (call 1) for rank 0, rank 1: "));
  CHECK(has(text, "rank 1 waits in send_recv 'recv' on world\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

// Rank 0 alone calls something on the world, as a save under `if (rank == 0)` does.
void wait_in_a_circle(World& w) {
  auto all = std::vector<int>(static_cast<size_t>(w.size()));
  std::iota(all.begin(), all.end(), 0);
  auto dp = w.make_communicator(all, "dp");
  float x = 1;
  Communicator& c = w.rank() == 0 ? w.communicator() : *dp;
  c.all_reduce(&x, 1, DType::f32, ReduceOp::sum, Device::Cpu, w.rank() == 0 ? "checkpoint" : "grads");
}
const char* const circle =
    "rank 0 waits in all_reduce 'checkpoint' on world (call 1) for rank 1, rank 1 waits in all_reduce 'grads' on dp "
    "(call 1) for rank 0: these waits never end";

TEST_CASE("ranks that wait for each other are ended by the watchdog, all with one message") {
  for (int n : {2, 3}) {
    std::atomic<int> told{0};
    captured_stderr([&] {
      std::string text = message_of<PeerError>([&] {
        run_ranks({.ranks = n, .watchdog = 0.1}, [&](World& w) {
          try {
            wait_in_a_circle(w);
          } catch (const PeerError& e) {
            told += has(e.what(), circle);
            throw;
          }
        });
      });
      CHECK(has(text, "if (rank == 0)"));
    });
    CHECK(told == n);
  }
}

TEST_CASE("thread ranks start alike and leave the caller's state alone") {
  seed(7);
  detail::next_random_key();
  set_num_threads(5);
  run_ranks({.ranks = 2}, [](World& w) {
    CHECK(detail::random_state().call == 0);
    detail::next_random_key();
    CHECK(num_threads() == std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(w.local_size())));
    CHECK(checked_mode());
  });
  CHECK(detail::random_state().call == 1);
  CHECK(num_threads() == 5);
  setenv("CLEAVE_THREADS", "3", 1);
  run_ranks({.ranks = 2, .checked = 0}, [](World&) {
    CHECK(num_threads() == 3);
    CHECK(!checked_mode());
  });
  setenv("CLEAVE_THREADS", "none", 1);
  CHECK_THROWS_AS(run_ranks({.ranks = 2}, [](World&) {}), ValueError);
  unsetenv("CLEAVE_THREADS");
  CHECK_THROWS_AS(run_ranks({.ranks = 0}, [](World&) {}), ValueError);
}

TEST_CASE("a simulated rank holds what an overlapped collective uses until its result is wanted") {
  auto peak = [](Overlap overlap) {
    int64_t out = 0;
    simulate(
        4, 1,
        [&](World& w) {
          CHECK(w.overlaps() == (overlap == Overlap::on));
          DeviceMesh mesh(w, {{"dp", 4}});
          Tensor x = empty({4, 1 << 20}, {.device = Device::Meta, .layout = mesh.layout("-, dp")});
          Tensor whole = start_redistribution(x, mesh.replicated(2).data(), "test");
          int64_t before = memory_stats(Device::Meta).active;
          cleave::detail::elements(whole);
          out = before - memory_stats(Device::Meta).active;
        },
        overlap);
    return out;
  };
  CHECK(peak(Overlap::off) == 0);
  CHECK(peak(Overlap::on) == 4 * 4 << 20);  // the ranks' blocks, side by side: dim 1 is gathered
}

TEST_CASE("a simulated rank counts bytes and time and moves nothing") {
  std::vector<CommCount> counts;
  simulate(1024, 17, [&](World& w) {
    CHECK(w.size() == 1024);
    CHECK(w.rank() == 17);
    CHECK(std::string(w.backend()) == "simulated");
    auto tp = w.make_communicator({16, 17, 18, 19}, "tp");
    CHECK(tp->rank() == 1);
    std::vector<int64_t> each(4, 250);
    tp->all_reduce(nullptr, int64_t{1} << 40, DType::bf16, ReduceOp::sum, Device::Meta);
    tp->all_gather(nullptr, nullptr, each, DType::f32, Device::Meta);
    tp->start({.kind = CollectiveKind::all_gather, .recv_counts = each, .device = Device::Meta})->wait();
    tp->barrier();
    float x = 1;
    CHECK_THROWS_AS(tp->all_reduce(&x, 1, DType::f32), CommError);
    counts = comm_counts();
  });
  REQUIRE(counts.size() == 3);
  auto of = [&](CollectiveKind kind, DType dtype) {
    for (const CommCount& c : counts)
      if (c.kind == kind && c.dtype == dtype) return c;
    return CommCount{};
  };
  CommCount reduced = of(CollectiveKind::all_reduce, DType::bf16),
            gathered = of(CollectiveKind::all_gather, DType::f32);
  CHECK(reduced.bytes == int64_t{2} << 40);
  CHECK(of(CollectiveKind::all_reduce, DType::f32).bytes == 4);  // the refused call was counted too
  CHECK(reduced.seconds > gathered.seconds);
  CHECK(gathered.bytes == 2000);
  CHECK(gathered.count == 2);
  CHECK_THROWS_AS(simulate(4, 4, [](World&) {}), ValueError);
}

// Under mpirun, one at a time, by faults_mpi.sh: MPI can be left only once.
TEST_SUITE("mpi faults" * doctest::skip()) {
  TEST_CASE("exception") {
    CHECK(launch_words({"prog"}, [](World& w) {
            std::vector<float> x(100000);
            for (int step = 0;; ++step) {
              if (step == 3 && w.rank() == 1) throw IndexError("token 9 is out of range");
              auto pending =
                  w.communicator().start({.kind = CollectiveKind::all_reduce, .recv = x.data(), .count = 100000});
              std::vector<float> y(200000, 1.0f);
              w.communicator().all_reduce(y.data(), 200000, DType::f32);
              pending->wait();
            }
          }) == 1);
  }
  TEST_CASE("exception in place") {  // others use this rank's memory
    CHECK(launch_words({"prog"}, [](World& w) {
            constexpr int64_t kCount = 300000;
            auto memory = w.communicator().shared_buffer(kCount * 4);
            auto* x = static_cast<float*>(memory.get());
            std::fill(x, x + kCount, 1.0f);
            std::vector<int64_t> counts(static_cast<size_t>(w.size()), kCount / w.size());
            for (int step = 0;; ++step) {
              std::vector<float> mine(x, x + counts[0]);
              if (step == 3 && w.rank() == 1) throw IndexError("token 9 is out of range");
              w.communicator().all_gather(mine.data(), x, counts, DType::f32);
              w.communicator().all_reduce(x, kCount, DType::f32, ReduceOp::max);
            }
          }) == 1);
  }
  // Rank 1 fails with calls under way that the others have started, or never start.
  TEST_CASE("exception with calls under way") {
    CHECK(launch_words({"prog", "--overlap"}, [](World& w) {
            std::vector<int> all(static_cast<size_t>(w.size()));
            std::iota(all.begin(), all.end(), 0);
            auto behind = w.make_background_communicator(all, "world");
            CHECK(w.overlaps());
            std::vector<float> x(100000), y(100000), z(100000);
            for (int step = 0;; ++step) {
              auto a = behind->start({.kind = CollectiveKind::all_reduce, .recv = x.data(), .count = 100000});
              auto b = behind->start({.kind = CollectiveKind::all_reduce, .recv = y.data(), .count = 100000});
              if (step == 3 && w.rank() == 1) throw IndexError("token 9 is out of range");
              w.communicator().all_reduce(z.data(), 100000, DType::f32);
              b->wait();
              a->wait();
            }
          }) == 1);
  }
  TEST_CASE("return") {
    CHECK(launch_words({"prog"}, [](World& w) {
            std::vector<float> x(100000);
            w.communicator().all_reduce(x.data(), 100000, DType::f32);
            if (w.rank() != 1)
              w.communicator().all_reduce(x.data(), 100000, DType::f32, ReduceOp::sum, Device::Cpu, "norm");
          }) == 1);
  }
  TEST_CASE("disagreement") {
    CHECK(launch_words({"prog"}, [](World& w) {
            set_checked_mode(true);
            std::vector<float> x(10);
            w.communicator().all_reduce(x.data(), w.rank() == 1 ? 9 : 10, DType::f32);
          }) == 1);
  }
  TEST_CASE("killed") {
    CHECK(launch_words({"prog"}, [](World& w) {
            w.communicator().barrier();
            if (w.rank() == 1) std::raise(SIGKILL);
            w.communicator().barrier();
          }) == 1);
  }
  TEST_CASE("terminated") {
    CHECK(launch_words({"prog"}, [](World& w) {
            w.communicator().barrier();
            if (w.rank() == 1) std::raise(SIGTERM);
            for (float x = 1;;) w.communicator().all_reduce(&x, 1, DType::f32);
          }) == 1);
  }
  TEST_CASE("busy") {  // one rank neither ends nor communicates
    launch_words({"prog"}, [](World& w) {
      w.communicator().barrier();
      if (w.rank() == 1) throw ValueError("no such file");
      if (w.rank() == 0)
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      w.communicator().barrier();
    });
  }
  TEST_CASE("watchdog") {
    setenv("CLEAVE_WATCHDOG", "0.2", 1);
    CHECK(launch_words({"prog"}, [](World& w) {
            if (w.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
            float x = 1;
            w.communicator().all_reduce(&x, 1, DType::f32, ReduceOp::sum, Device::Cpu, "grads");
            CHECK(x == w.size());
          }) == 0);
  }
  TEST_CASE("circle") {
    setenv("CLEAVE_WATCHDOG", "0.2", 1);
    CHECK(launch_words({"prog"}, wait_in_a_circle) == 1);
  }
  TEST_CASE("ranks") {
    CHECK(launch_words({"prog", "--ranks", "7"}, [](World&) {}) == 1);
  }
}
