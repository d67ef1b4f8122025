#include <cleave/dist/internal/alarm.h>

#include <climits>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <thread>
#endif

namespace cleave::dist::detail {

#ifdef __linux__

// Without FUTEX_PRIVATE_FLAG: the sleepers may be other processes.
void Alarm::wake_all() {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &changes_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Alarm::wait_while(uint32_t before, std::chrono::microseconds most) {
  timespec limit = {most.count() / 1000000, most.count() % 1000000 * 1000};
  syscall(SYS_futex, &changes_, FUTEX_WAIT, before, &limit, nullptr, 0);
}

#else

void Alarm::wake_all() {}
void Alarm::wait_while(uint32_t, std::chrono::microseconds most) {
  std::this_thread::sleep_for(std::min(most, std::chrono::microseconds(50)));
}

#endif

}  // namespace cleave::dist::detail
