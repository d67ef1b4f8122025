// This process as a rank of mpirun: MPI itself, the notices that ranks send each other, and waiting.
#pragma once
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cleave::dist::detail {

class HostMemory;
struct Watch;
using Clock = std::chrono::steady_clock;

/// Something that completes in steps while it is polled.
class Polled {
 public:
  virtual ~Polled() = default;
  /// Does what can be done now; whether it is over. May throw CommError.
  virtual bool advance() = 0;
  virtual std::vector<int> missing() = 0;  ///< world ranks that it waits for
  virtual void abandon() = 0;
  virtual std::string place() const = 0;  ///< "all_reduce 'norm' on tp (call 3)"
};

/// Memory for messages, used again.
class Scratch {
 public:
  struct Block {
    std::unique_ptr<std::byte[]> data;
    size_t bytes = 0;
  };
  Block take(size_t bytes);
  void give(Block block);

 private:
  std::vector<Block> free_;
};

class MpiProcess {
 public:
  /// `several`: asks for calls from several threads. A second process object of the same rank has messages and notices
  /// of its own, for use by another thread; every rank makes it.
  explicit MpiProcess(double watchdog_seconds, bool several = false);
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  int rank = 0, size = 1, local_size = 1;
  MPI_Comm data = MPI_COMM_NULL;  ///< the messages of all communicators, told apart by tag
  int next_group = 1;             ///< the least number that this rank has seen no communicator with
  int max_tag = 32767;
  bool crowded = false;    ///< more ranks than cores on this host
  std::vector<int> hosts;  ///< by world rank: equal for those on one host
  std::shared_ptr<HostMemory> memory;
  std::vector<Polled*> started;  ///< started calls; they progress while others are waited for
  Scratch scratch;
  std::vector<Scratch::Block> graveyard;  ///< of abandoned calls: a late message may still arrive in them

  /// Throws Interrupted or PeerError if a signal or a rank's failure arrived.
  void check();
  /// Throws PeerError if a rank of this host has died without a word: mpirun then asks the others to end.
  void blame();
  /// Whether `check` would throw, after a look at the notices that arrived.
  bool ending();
  bool has_returned(int world_rank) const { return peers_[static_cast<size_t>(world_rank)].ended; }
  /// A rank that returned is missed in the call at `place`: throws PeerError.
  [[noreturn]] void miss(int world_rank, const std::string& place);
  int pid_of(int world_rank) const { return pids_[static_cast<size_t>(world_rank)]; }
  /// Polls until it is over. If it throws, the call was abandoned and its buffers are free to go.
  void wait(Polled& call);

  /// The watchdog of a wait that goes on: tells the others of it, then reports what they told, and throws PeerError
  /// once ranks are known to wait for each other. If `state.told`, the wait ends with `announce_going_on`.
  void watch(double seconds, Watch& state, const std::function<std::string()>& place,
             const std::function<std::vector<int>()>& missing);
  void announce_going_on() { announce(Kind::going_on, rank, ""); }

  /// Tells the other ranks how this one ended: the origin and text of its failure, or that it returned.
  void announce_failure(int origin, const std::string& text) { announce(Kind::failed, origin, text); }
  void announce_return() { announce(Kind::returned, rank, ""); }
  /// Waits until every rank has ended. False if one does not end in time after a failure or a signal.
  bool wait_for_all_to_end(bool failed);
  bool failed() const { return failed_ >= 0; }
  int failed_rank() const { return failed_; }
  const std::string& failure() const { return failure_; }
  /// Whether MPI allows calls from several threads.
  bool allows_threads() const;
  /// Ends its messages; only when every rank has ended. MPI itself goes on.
  void close();

 private:
  enum class Kind : int { failed, returned, waiting, going_on };
  struct Notice {
    int kind = 0, origin = 0, waits_for = -1;
    char text[1000] = {};
  };
  struct Outgoing {
    Notice notice;
    std::vector<MPI_Request> requests;
  };
  struct Peer {
    bool ended = false;
    Clock::time_point returned_at = Clock::time_point::max();
    std::string place{};
    int waits_for = -1;
    Clock::time_point since{}, told_at{};  // of that wait's first notice and its last
  };
  void announce(Kind kind, int origin, const std::string& text, int waits_for = -1);
  void listen();
  void look();
  void check_returned(Polled& call);
  void find_hosts();
  void report(double seconds, const std::string& place, const std::vector<int>& missing);
  std::vector<int> circle_of(int waits_for) const;
  bool told_since(Clock::time_point when, const std::vector<int>& ranks) const;
  void end_circle(const std::vector<int>& circle, const std::string& place);

  MPI_Comm control_ = MPI_COMM_NULL;
  Notice incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Outgoing> outgoing_;
  std::mutex outgoing_mutex_;
  std::vector<Peer> peers_;
  int failed_ = -1;
  std::string failure_;
  double watchdog_;
  bool somebody_returned_ = false;
  std::vector<int> pids_;    // by world rank
  std::vector<bool> known_;  // by world rank: its process can be seen from here
};

}  // namespace cleave::dist::detail
