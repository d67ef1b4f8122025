// SIGINT and SIGTERM as a flag that ranks look at.
#include <cleave/dist/internal/interrupt.h>
#include <cleave/dist/internal/world_backend.h>

#include <cleave/core/error.h>

#include <atomic>
#include <utility>

namespace cleave::dist {
namespace {

// Signals are the process's, so this is too.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

thread_local std::function<void()> blame;

extern "C" void note_signal(int number) { received.store(number); }

}  // namespace

namespace detail {

int interrupt_signal() { return received.load(std::memory_order_relaxed); }

BlameScope::BlameScope(std::function<void()> f) { blame = std::move(f); }
BlameScope::~BlameScope() { blame = nullptr; }

InterruptScope::InterruptScope() {
  received.store(0);
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // the second signal does what it did before
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int_);
  sigaction(SIGTERM, &action, &before_term_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
  received.store(0);
}

}  // namespace detail

void check_interrupt() {
  int number = detail::interrupt_signal();
  if (number && blame) blame();
  if (number) throw Interrupted(number == SIGINT ? "interrupted (SIGINT)" : "interrupted (SIGTERM)");
}

}  // namespace cleave::dist
