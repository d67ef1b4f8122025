// The shared memory of one group of thread ranks. Every call has a number; each member posts what it hands in under
// that number, waits until all have posted, does its part on the others' data, and counts it as done.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/threads_world.h>

namespace cleave::dist::detail {

inline constexpr uint64_t kRing = 4;    ///< calls of a member that may be under way
inline constexpr int64_t kSlot = 8192;  ///< payloads up to this are copied, so that one synchronisation is enough

/// What a member hands in. `send` points into the slot if the payload was copied.
struct alignas(64) Post {
  CallRecord record;
  bool checked = false;
  bool copied = true;
  const void* send = nullptr;
  void* data = nullptr;                           ///< all_reduce: the buffer, which the owner of each block writes
  std::vector<int64_t> send_counts, recv_counts;  ///< all_to_all
  alignas(64) std::byte slot[kSlot];
};

struct Member {
  alignas(64) std::atomic<uint64_t> posted{0};  ///< number of calls posted
  alignas(64) std::atomic<uint64_t> done{0};    ///< number of calls whose part is done
  alignas(64) std::atomic<bool> busy{false};    ///< uses others' buffers
  Post ring[kRing];
  Post& post(uint64_t number) { return ring[number % kRing]; }
};

/// Messages from one member to another, by number.
struct Mailbox {
  std::mutex mutex;
  std::map<uint64_t, std::vector<std::byte>> messages;
  std::atomic<uint64_t> sent{0};
};

class ThreadGroup {
 public:
  ThreadGroup(const std::vector<int>& world_ranks, const std::string& axis)
      : ranks(world_ranks), name(axis), members(world_ranks.size()) {}
  int size() const { return static_cast<int>(ranks.size()); }
  Member& member(int i) { return members[static_cast<size_t>(i)]; }
  Mailbox& mailbox(int from, int to) {
    std::lock_guard lock(mutex_);
    return mailboxes_[{from, to}];
  }

  const std::vector<int> ranks;
  const std::string name;
  std::deque<Member> members;  // a deque, as atomics do not move
  Alarm alarm;

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Mailbox> mailboxes_;
};

/// One rank's waiting in one call: spins, yields, then sleeps; notices failures, ranks that returned, and time passing.
class Waiter {
 public:
  Waiter(ThreadBackend& rank, ThreadGroup& group, const CallRecord& call) : rank_(rank), group_(group), call_(call) {}

  /// Until every member's counter has reached `number`.
  void all(std::atomic<uint64_t> Member::*counter, uint64_t number) {
    counter_ = counter;
    number_ = number;
    for (int i = 0; i < group_.size(); ++i) {
      auto& value = group_.member(i).*counter;
      if (value.load(std::memory_order_acquire) < number)
        until(i, [&value, number] { return value.load(std::memory_order_seq_cst) >= number; });
    }
  }
  /// Until `ready`, which `member` is to bring about. Throws Interrupted or PeerError.
  template <class Ready>
  void until(int member, Ready&& ready) {
    if (spin(ready)) return;
    for (int i = 0; i < kYields; ++i) {
      if (ready()) return;
      look(member, ready);
      std::this_thread::yield();
    }
    Sleep sleep(*this);
    while (!ready()) {
      look(member, ready);
      group_.alarm.sleep(ready, rank_.started.empty() ? kSleep : kShortSleep);
      if (sleep.overdue()) report(sleep, member);
    }
  }

 private:
  static constexpr int kYields = 150;
  static constexpr std::chrono::nanoseconds kSpin{500};
  static constexpr std::chrono::microseconds kSleep{10000}, kShortSleep{200};

  /// Says in the world where this rank is, while it sleeps.
  struct Sleep {
    explicit Sleep(Waiter& waiter);
    ~Sleep();
    bool overdue() const;
    Waiter& waiter;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  template <class Ready>
  bool spin(Ready& ready) {
    if (rank_.world->crowded) return false;
    auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 4; ++i) {
        if (ready()) return true;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }
  template <class Ready>
  void look(int member, Ready& ready) {
    if (!rank_.started.empty()) rank_.progress();
    // What a rank did before it failed or returned is visible now: if that is enough, this call is complete.
    if (rank_.world->ending() && !ready()) rank_.world->give_up(rank_.rank);
    if (rank_.world->has_left(group_.ranks[static_cast<size_t>(member)]) && !ready()) peer_left(member);
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  [[noreturn]] void peer_left(int member);
  void report(const Sleep& sleep, int member);

  ThreadBackend& rank_;
  ThreadGroup& group_;
  const CallRecord& call_;
  std::atomic<uint64_t> Member::*counter_ = nullptr;  // what `all` waits for
  uint64_t number_ = 0;
  bool reported_ = false;
};

}  // namespace cleave::dist::detail
