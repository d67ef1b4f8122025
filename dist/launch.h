// World and launch: how a program becomes several ranks.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cleave::dist {

class Communicator;
class MeshState;
struct MeshAxis;
class WorldBackend;
class Progress;

/// The ranks of a running program, as one of them sees it. Lives while the launched function runs; meshes, layouts and
/// distributed tensors must not outlive it.
class World {
 public:
  /// With `background`, a second one for the same ranks, communication overlaps with computation on it.
  explicit World(std::unique_ptr<WorldBackend> backend, std::unique_ptr<WorldBackend> background = nullptr);
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
  /// Whether collectives that are started go on while this rank computes. The same on all ranks.
  bool overlaps() const { return overlaps_; }
  /// As `make_communicator`, for `start`: its calls are made one after the other by a thread of their own, in the order
  /// in which this rank starts them on any such communicator. Without overlap it is an ordinary one.
  std::unique_ptr<Communicator> make_background_communicator(const std::vector<int>& ranks, const std::string& name);
  /// Waits for all that was started, as the launched function returns. Throws an error that nobody has waited for.
  void finish();
  /// The mesh state for these axes and ranks, made at first use.
  const MeshState* mesh(const std::vector<MeshAxis>& axes, const std::vector<int>& ranks);

  /// The world of this thread, or null outside a launched function.
  static World* current();

 private:
  void check_members(const std::vector<int>& ranks, const std::string& name) const;
  std::unique_ptr<WorldBackend> backend_;
  std::unique_ptr<Progress> progress_;
  const bool overlaps_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<MeshState>> meshes_;
};

/// Whether communication that the rank need not wait for goes on while it computes: the reduction of gradients during
/// backward, the gathering of the next module's split parameters. A thread per rank makes these calls. It pays where
/// the link is slow or ranks come at different times, and takes a share of a core: with as many ranks as cores on one
/// host and all of them equally loaded there is nothing to gain. Numbers and traffic are the same either way.
enum class Overlap : int8_t {
  off,
  on,        ///< under MPI only if it allows calls from several threads (MPI_THREAD_MULTIPLE); else as off
  automatic  ///< on if every rank of a host has two cores or more
};

/// A link between thread ranks, for tests and benchmarks: a collective takes at least this long. Zeros: as fast as it
/// is.
struct SimulatedLink {
  double latency = 0;    ///< seconds per collective
  double bandwidth = 0;  ///< bytes per second of what a rank hands in; 0: without limit
  bool slow() const { return latency > 0 || bandwidth > 0; }
  std::chrono::duration<double> time(int64_t bytes) const {
    return std::chrono::duration<double>(latency + (bandwidth > 0 ? static_cast<double>(bytes) / bandwidth : 0));
  }
};

struct LaunchOptions {
  int ranks = 1;     ///< thread ranks
  int checked = -1;  ///< compare every collective across ranks first: 1 on, 0 off, -1: CLEAVE_CHECKED or the backend's
                     ///< default (on for threads)
  double watchdog = 30;  ///< seconds of a wait before a report of who waits where; in a circle, PeerError; 0: never
  Overlap overlap = Overlap::off;
  SimulatedLink link{};  ///< thread ranks only
};

/// Runs `main` on every rank and returns the exit code (0, or 1 after an error, which is printed once per rank). Takes
/// `--ranks N` (or `--ranks=N`, before any `--`): N thread ranks; and `--overlap`, with `on` (which it means alone),
/// `off` or `auto` behind it: see Overlap. The caller's argc cannot change, so these are moved behind the other
/// arguments in argv; `World::arguments()` is without them. Under mpirun each process is one rank, and
/// `--ranks` must agree with it if given; launch once per process there. Otherwise one rank. Thread ranks start with
/// fresh thread-local state, alike on every rank, and leave the caller's (its random stream, say) untouched. Sets each
/// rank's threads to floor(cores / ranks of the host), at least 1, or to CLEAVE_THREADS. CLEAVE_WATCHDOG: seconds, and
/// CLEAVE_OVERLAP: on, off or auto, see LaunchOptions. An exception on one rank ends the others with PeerError at their
/// current or next collective. SIGINT and SIGTERM raise `Interrupted` on every rank at its current or next collective
/// or `check_interrupt()`; the second one ends the process at once.
int launch(int argc, char** argv, const std::function<void(World&)>& main);

/// Runs `main` on thread ranks of this process and rethrows the error of the rank that failed first: for tests and
/// tools.
void run_ranks(const LaunchOptions& options, const std::function<void(World&)>& main);

/// Runs `main` as rank `rank` of a world of `ranks` that exist only as counters: collectives on Meta tensors count
/// bytes and time and move nothing. For planning and tests of meshes of any size. With `overlap` on collectives are
/// started and waited for where they would be (what they use is held until then), and are over at once.
void simulate(int ranks, int rank, const std::function<void(World&)>& main, Overlap overlap = Overlap::off);

/// Throws Interrupted if SIGINT or SIGTERM arrived during `launch`.
void check_interrupt();

/// Whether collectives of this rank are compared first.
bool checked_mode();
void set_checked_mode(bool on);

}  // namespace cleave::dist
