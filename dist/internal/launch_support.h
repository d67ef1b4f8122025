// What launching thread ranks and MPI ranks have in common.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <cleave/dist/launch.h>

namespace cleave::dist::detail {

/// Threads of a rank: CLEAVE_THREADS, else floor(cores / local ranks), at least 1.
int threads_per_rank(int local_ranks);
/// Whether ranks get a progress thread, with so many of them on a host (0: unknown).
bool overlaps(const LaunchOptions& options, int local_ranks);
/// Settings of the calling rank: checked mode by option, CLEAVE_CHECKED, or the backend's default.
void set_checked_mode(const LaunchOptions& options, bool backend_default);

/// What the error says, and the rank it came from if it is another's.
struct Failure {
  std::string message;
  int origin = -1;
};
Failure describe_failure(const std::exception_ptr& error);
/// The message that other ranks get for it.
std::string announcement(int rank, const Failure& failure);
/// "rank 1: message" to stderr, in one piece.
void print_error(int rank, const std::string& message);

/// Whether mpirun started this process, and the number of ranks it made (0: it did not).
int mpi_ranks_in_environment();
/// Runs `main` as this process's rank of mpirun; in dist/mpi. Returns the exit code.
int run_mpi(const LaunchOptions& options, std::vector<std::string> arguments, const std::function<void(World&)>& main);

}  // namespace cleave::dist::detail
