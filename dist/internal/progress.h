// The progress thread of a rank: makes collectives while the rank computes.
#pragma once
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cleave/dist/internal/world_backend.h>

namespace cleave::dist {
namespace detail {

/// Payload of this rank that may be under way: `start` waits for earlier calls to end before it exceeds this (a single
/// larger call is let through). It bounds the memory that calls under way hold on to.
inline constexpr int64_t kUnderWayBytes = int64_t{25} << 20;

}  // namespace detail

/// Makes blocking calls one after the other, in order of start, on communicators that belong to its thread. All ranks
/// start alike and so agree on the order: what one thread waits for, the others reach, whatever the ranks themselves
/// wait for meanwhile. Counts, phases and argument checks are the rank's, at the start of a call; what a call throws
/// comes from the `wait` of its Pending.
class Progress {
 public:
  /// `backend` is the thread's from now on.
  explicit Progress(std::unique_ptr<WorldBackend> backend);
  /// Waits for what was started.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A communicator of the rank whose calls the thread makes. The thread's own one is made with the first call.
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name);
  /// Waits for what was started; throws the first error that no `wait` is left to throw.
  void finish();

  struct Queue;

 private:
  void run();
  std::shared_ptr<Queue> queue_;
  std::unique_ptr<WorldBackend> backend_;
  std::thread thread_;
};

}  // namespace cleave::dist
