#include "gpt/restart.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gpt {

namespace {

volatile std::sig_atomic_t child = 0, asked_to_end = 0;

void pass_on(int signal) {
  asked_to_end = 1;
  if (child > 0) kill(static_cast<pid_t>(child), signal);
}

/// Handlers that pass signals on to the child.
class PassSignals {
 public:
  PassSignals() {
    struct sigaction action {};
    action.sa_handler = pass_on;
    sigaction(SIGINT, &action, &before_int_);
    sigaction(SIGTERM, &action, &before_term_);
    asked_to_end = 0;
  }
  ~PassSignals() { restore(); }
  PassSignals(const PassSignals&) = delete;
  PassSignals& operator=(const PassSignals&) = delete;
  void restore() const {
    sigaction(SIGINT, &before_int_, nullptr);
    sigaction(SIGTERM, &before_term_, nullptr);
  }

 private:
  struct sigaction before_int_ {
  }, before_term_{};
};

struct Outcome {
  int code;
  bool killed;
};

Outcome wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), true};
  return {WEXITSTATUS(status), false};
}

Outcome run_child(const PassSignals& signals, const std::function<int()>& attempt) {
  std::fflush(nullptr);
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) throw cleave::Error(fmt::format("--restarts: no child process: {}", std::strerror(errno)));
  if (pid == 0) {
    signals.restore();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // who kills the parent means the run
    int code = getppid() == parent ? attempt() : 1;
    std::fflush(nullptr);
    _exit(code);
  }
  child = pid;
  if (asked_to_end) kill(pid, SIGTERM);
  Outcome out = wait_for(pid);
  child = 0;
  return out;
}

// Failures soon after the start, one after the other, are answered by longer and longer pauses.
void pause_before_restart(int quick_failures) {
  constexpr int kLongest = 30;
  if (quick_failures == 0) return;
  int seconds = std::min(kLongest, 1 << std::min(quick_failures - 1, 8));
  std::fprintf(stderr, "gpt: it failed soon after its start; next try in %d s\n", seconds);
  timespec left{seconds, 0};
  while (!asked_to_end && nanosleep(&left, &left) != 0) {}
}

}  // namespace

int run_with_restarts(int64_t restarts, const std::function<std::string()>& progress,
                      const std::function<int(bool resumed)>& attempt) {
  constexpr auto kQuick = std::chrono::seconds(10);
  PassSignals signals;
  int quick_failures = 0;
  for (int64_t done = 0;; ++done) {
    std::string before = progress();
    auto start = std::chrono::steady_clock::now();
    Outcome out = run_child(signals, [&] { return attempt(done > 0); });
    if (out.code == 0 || asked_to_end) return out.code;
    std::string how = out.killed ? fmt::format("was killed by signal {}", out.code - 128)
                                 : fmt::format("ended with exit code {}", out.code);
    bool progressed = progress() != before, hopeless = !out.killed && !progressed;
    if (hopeless || done == restarts) {
      std::fprintf(stderr, "gpt: the run %s; %s\n", how.c_str(),
                   hopeless ? "it left no new checkpoint and would fail again" : "no restarts are left");
      return out.code;
    }
    std::fprintf(stderr, "gpt: the run %s; restart %lld of %lld from the newest checkpoint\n", how.c_str(),
                 static_cast<long long>(done + 1), static_cast<long long>(restarts));
    quick_failures = progressed || std::chrono::steady_clock::now() - start > kQuick ? 0 : quick_failures + 1;
    pause_before_restart(quick_failures);
    if (asked_to_end) return out.code;
  }
}

}  // namespace gpt
