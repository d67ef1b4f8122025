// World and launch: how a program becomes several ranks.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cleave::dist {

class Communicator;
class MeshState;
struct MeshAxis;
class WorldBackend;

/// The ranks of a running program, as one of them sees it. Lives while the launched function runs; meshes, layouts and
/// distributed tensors must not outlive it.
class World {
 public:
  explicit World(std::unique_ptr<WorldBackend> backend);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  /// Ranks on this rank's host (they share its cores).
  int local_size() const;
  /// "self", "threads", "mpi", "simulated".
  const char* backend() const;
  /// The program's arguments without its name and without those that `launch` took; empty outside `launch`.
  const std::vector<std::string>& arguments() const;
  /// All ranks.
  Communicator& communicator();
  /// A communicator of some ranks, `ranks` in its order; called by its members only.
  std::unique_ptr<Communicator> make_communicator(const std::vector<int>& ranks, const std::string& name);
  /// The mesh state for these axes and ranks, made at first use.
  const MeshState* mesh(const std::vector<MeshAxis>& axes, const std::vector<int>& ranks);

  /// The world of this thread, or null outside a launched function.
  static World* current();

 private:
  std::unique_ptr<WorldBackend> backend_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<MeshState>> meshes_;
};

struct LaunchOptions {
  int ranks = 1;     ///< thread ranks
  int checked = -1;  ///< compare every collective across ranks first: 1 on, 0 off, -1: CLEAVE_CHECKED or the backend's
                     ///< default (on for threads)
  double watchdog = 30;  ///< seconds a rank may wait in one collective before a report of who waits where; 0: never
};

/// Runs `main` on every rank and returns the exit code (0, or 1 after an error, which is printed once per rank). Takes
/// `--ranks N` (or `--ranks=N`, before any `--`): N thread ranks. The caller's argc cannot change, so these are moved
/// behind the other arguments in argv; `World::arguments()` is without them. Under mpirun each process is one rank, and
/// `--ranks` must agree with it if given; launch once per process there. Otherwise one rank. Thread ranks start with
/// fresh thread-local state, alike on every rank, and leave the caller's (its random stream, say) untouched. Sets each
/// rank's threads to floor(cores / ranks of the host), at least 1, or to CLEAVE_THREADS. CLEAVE_WATCHDOG: seconds, see
/// LaunchOptions. An exception on one rank ends the others with PeerError at their current or next collective. SIGINT
/// and SIGTERM raise `Interrupted` on every rank at its current or next collective or `check_interrupt()`; the second
/// one ends the process at once.
int launch(int argc, char** argv, const std::function<void(World&)>& main);

/// Runs `main` on thread ranks of this process and rethrows the error of the rank that failed first: for tests and
/// tools.
void run_ranks(const LaunchOptions& options, const std::function<void(World&)>& main);

/// Runs `main` as rank `rank` of a world of `ranks` that exist only as counters: collectives on Meta tensors count
/// bytes and time and move nothing. For planning and tests of meshes of any size.
void simulate(int ranks, int rank, const std::function<void(World&)>& main);

/// Throws Interrupted if SIGINT or SIGTERM arrived during `launch`.
void check_interrupt();

/// Whether collectives of this rank are compared first.
bool checked_mode();
void set_checked_mode(bool on);

}  // namespace cleave::dist
