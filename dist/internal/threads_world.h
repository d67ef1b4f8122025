// Ranks as threads of one process: what they share, and how one of them waits for another.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <cleave/dist/internal/world_backend.h>

namespace cleave::dist::detail {

class ThreadGroup;

/// Shared by all rank threads.
class ThreadWorld {
 public:
  ThreadWorld(int ranks, double watchdog_seconds, const SimulatedLink& link = {});
  ~ThreadWorld();

  const int size;
  const double watchdog;  ///< seconds; 0: never
  const SimulatedLink link;
  const bool crowded;  ///< more ranks than cores: spinning would keep others from running

  /// The first failure of the world ends every wait; `text` is the message of the others' PeerError.
  void fail(int rank, const std::string& text);
  /// `rank` left the launched function without an error.
  void leave(int rank) { left_[static_cast<size_t>(rank)].store(true, std::memory_order_seq_cst); }
  bool has_left(int rank) const { return left_[static_cast<size_t>(rank)].load(std::memory_order_seq_cst); }
  bool stopped() const { return stopped_.load(std::memory_order_seq_cst); }
  int first_failed() const;  ///< -1: none
  /// Whether waits that are not over must end.
  bool ending() const { return interrupt_signal() || stopped(); }
  /// Throws Interrupted or PeerError if they must.
  void check(int rank) {
    if (ending()) give_up(rank);
  }
  [[noreturn]] void give_up(int rank);

  std::shared_ptr<ThreadGroup> group(const std::vector<int>& ranks, const std::string& axis, int creation);

  /// Where a rank (or its progress thread, `background`) sleeps, for reports, and for which rank; empty: it does not.
  void set_place(int rank, bool background, const std::string& text, int waits_for = -1);
  /// For which rank it sleeps now.
  void set_waits_for(int rank, bool background, int waits_for);
  /// Fails the world if `rank` can never wake, as ranks have slept for each other for some time.
  void end_circle(int rank, bool background);
  /// "rank 1 waits in ...; rank 3 is not in a collective".
  std::string places(const std::vector<int>& ranks) const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> stopped_{false};
  int failed_ = -1;
  std::string message_;
  std::vector<std::atomic<bool>> left_;
  struct Place {
    std::string text{};
    int waits_for = -1;
    std::chrono::steady_clock::time_point since{}, seen{};  // its beginning, and when it last looked in vain
  };
  Place& place(int rank, bool background) { return places_[static_cast<size_t>(background ? size + rank : rank)]; }
  std::vector<Place> places_;  // of the ranks, then of their progress threads
  struct Entry {
    std::shared_ptr<ThreadGroup> group;
    size_t joined = 0;
  };
  std::map<std::tuple<std::vector<int>, std::string, int>, Entry> groups_;
};

class SharedCall;

/// One rank's part of a ThreadWorld, or that of its progress thread. Only that one thread uses it.
class ThreadBackend : public WorldBackend {
 public:
  ThreadBackend(std::shared_ptr<ThreadWorld> shared, int rank, bool background = false)
      : WorldBackend("threads", rank, shared->size, shared->size), world(std::move(shared)), background(background) {}
  std::unique_ptr<Communicator> make_communicator(const std::vector<int>& ranks, const std::string& axis) override;

  const std::shared_ptr<ThreadWorld> world;
  const bool background;
  std::vector<SharedCall*> started;  ///< in order of start; their part is not yet done
};

}  // namespace cleave::dist::detail
