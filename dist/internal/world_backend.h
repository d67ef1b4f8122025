// What a World is made of: who this rank is, and how communicators are made.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>

namespace cleave::dist {

class WorldBackend {
 public:
  WorldBackend(const char* kind, int rank, int size, int local_size)
      : name(kind), rank(rank), size(size), local_size(local_size) {}
  virtual ~WorldBackend() = default;
  WorldBackend(const WorldBackend&) = delete;
  WorldBackend& operator=(const WorldBackend&) = delete;

  /// `ranks` are distinct world ranks and contain this one; more than one, except in a simulated world.
  virtual std::unique_ptr<Communicator> make_communicator(const std::vector<int>& ranks, const std::string& axis) = 0;

  const char* const name;
  const int rank, size, local_size;
  std::vector<std::string> arguments;
  bool overlaps = false;  ///< without a thread: of a simulated world

 protected:
  /// How many communicators of these ranks and this name were made before, by this rank.
  int creation(const std::vector<int>& ranks, const std::string& axis) { return creations_[{ranks, axis}]++; }

 private:
  std::map<std::pair<std::vector<int>, std::string>, int> creations_;
};

namespace detail {

/// A group of one rank: the results are its own data.
std::unique_ptr<Communicator> make_self_communicator(const std::string& name);
std::unique_ptr<WorldBackend> make_self_backend();
std::unique_ptr<WorldBackend> make_simulated_backend(int ranks, int rank);

/// The signal that asked this program to end, or 0.
int interrupt_signal();

}  // namespace detail
}  // namespace cleave::dist
