// How a member of a shared group waits for others: spins, yields, then sleeps; notices failures, ranks that returned,
// and time passing.
#pragma once
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cleave/dist/internal/shared_group.h>

namespace cleave::dist::detail {

class SharedCall;
class Waiter;

/// What the watchdog did about one wait.
struct Watch {
  bool told = false, reported = false;
  int waits_for = -1;                              ///< the first rank that was missing then
  double since = 0;                                ///< seconds into the wait when it was this one first
  double told_at = 0;                              ///< and when the others were told last
  std::chrono::steady_clock::time_point circle{};  ///< when a circle was first seen; none: the clock's zero
};

/// The members of a group as one of them knows them: what differs between threads and processes.
class Peers {
 public:
  virtual ~Peers() = default;

  /// The address of this rank's memory for others; false: they cannot reach it.
  virtual bool locate(const void* data, int64_t bytes, Address& address) = 0;
  /// Where `member`'s memory lies for this rank.
  virtual std::byte* address(int member, const Address& address) = 0;

  /// Whether the system copies from memory of other members that they do not share.
  virtual bool reads_remote() const = 0;
  virtual void read_remote(int member, uint64_t pointer, int64_t bytes, void* to) = 0;

  virtual bool may_be_killed() const = 0;  ///< a member alone, while others go on
  virtual bool crowded() const = 0;        ///< more ranks than cores: spinning would keep others from running
  virtual int looks_every() const = 0;     ///< yields between two looks at the state of the world
  virtual std::chrono::microseconds longest_sleep() const = 0;
  virtual void progress() = 0;  ///< this rank's other calls
  virtual bool ending() = 0;    ///< whether waits that are not over must end
  [[noreturn]] virtual void give_up() = 0;
  virtual bool has_left(int member) = 0;
  [[noreturn]] virtual void peer_left(int member, const std::string& place) = 0;
  /// A wait that began to sleep, has slept for so many seconds (each time it wakes), and is over.
  virtual void sleeps(Waiter& waiter) = 0;
  virtual void slept(Waiter& waiter, double seconds) = 0;
  virtual void woke(Waiter& waiter) = 0;

  int contended = 0;  ///< waits that need not yield, as others want this core
};

/// One member's waits in one call.
class Waiter {
 public:
  Waiter(Peers& peers, SharedGroup& group, const Collective& call, uint64_t sequence)
      : peers_(peers), group_(group), call_(call), sequence_(sequence) {}

  /// Until every member has set this mark for step `number`.
  void all(Mark mark, uint64_t number) {
    int i = 0, n = group_.size();
    while (i < n && group_.reached(i, mark, number, std::memory_order_acquire)) ++i;
    if (i == n) return;
    mark_ = mark;
    number_ = number;
    everyone_ = true;
    auto ready = [&] {
      while (i < n && group_.reached(i, mark, number, std::memory_order_seq_cst)) ++i;
      return i == n;
    };
    wait(i, ready);
  }
  /// Until `ready`, which `member` is to bring about. Throws Interrupted or PeerError.
  template <class Ready>
  void until(int member, Ready&& ready) {
    waited_for_ = member;
    wait(waited_for_, ready);
  }

  /// "all_reduce 'norm' on tp (call 3)".
  std::string place() const { return detail::place(CallRecord(call_, sequence_), group_.name); }
  std::vector<int> missing() const;  ///< world ranks that are waited for
  Watch watch{};

 private:
  static constexpr int kYields = 150;
  static constexpr std::chrono::nanoseconds kSpin{500};
  static constexpr std::chrono::microseconds kLongYields{500};
  static constexpr int kContended = 200;
  using Clock = std::chrono::steady_clock;

  // Only a long sleep is worth telling of.
  struct Sleep {
    explicit Sleep(Waiter& w) : waiter(w) {}
    ~Sleep() {
      if (noted) waiter.peers_.woke(waiter);
    }
    void passed() {
      double seconds = std::chrono::duration<double>(Clock::now() - since).count();
      if (seconds < 1e-3) return;
      if (!std::exchange(noted, true)) waiter.peers_.sleeps(waiter);
      waiter.peers_.slept(waiter, seconds);
    }
    Waiter& waiter;
    bool noted = false;
    Clock::time_point since = Clock::now();
  };

  // `member` is the one to wait for now.
  template <class Ready>
  void wait(const int& member, Ready& ready) {
    if (peers_.crowded() ? ready() : spin(ready)) return;
    if (yield(member, ready)) return;
    Sleep sleep(*this);
    while (!ready()) {
      look(member, ready);
      group_.alarm().sleep(ready, peers_.longest_sleep());
      if (!ready()) sleep.passed();
    }
  }
  template <class Ready>
  static bool spin(Ready& ready) {
    auto end = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 4; ++i) {
        if (ready()) return true;
        relax();
      }
    } while (Clock::now() < end);
    return false;
  }
  // Yields that give the core away for long mean that somebody else wants it: a sleeper gets it back sooner than one
  // who yields, so the next waits sleep at once.
  template <class Ready>
  bool yield(const int& member, Ready& ready) {
    if (peers_.contended > 0 && peers_.contended--) return false;
    int between = peers_.looks_every();
    auto start = Clock::now();
    bool done = false, late = false;
    for (int i = 1; i <= kYields && !done && !late; ++i) {
      if (i % between == 0) look(member, ready);
      std::this_thread::yield();
      done = ready();
      if (done || i % 16 == 0) late = Clock::now() - start > kLongYields;
    }
    if (late && peers_.crowded()) peers_.contended = kContended;
    return done;
  }
  template <class Ready>
  void look(const int& member, Ready& ready) {
    peers_.progress();
    if (ready()) return;
    // What a rank did before it failed or returned is visible now: if that is enough, this wait is over.
    if (peers_.ending() && !ready()) peers_.give_up();
    int asked = member;
    if (peers_.has_left(asked) && !ready() && member == asked) peers_.peer_left(asked, place());
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  Peers& peers_;
  SharedGroup& group_;
  const Collective& call_;
  uint64_t sequence_;
  Mark mark_ = Mark::posted;  // what `all` waits for
  uint64_t number_ = 0;
  bool everyone_ = false;
  int waited_for_ = 0;
};

}  // namespace cleave::dist::detail
