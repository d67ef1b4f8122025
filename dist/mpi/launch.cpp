// Launching under mpirun: this process is one rank.
#include <cleave/dist/mpi/communicator.h>
#include <cleave/dist/mpi/hosts.h>
#include <cleave/dist/mpi/process.h>

#include <cleave/core/cpu/isa.h>
#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/core/random.h>
#include <cleave/dist/internal/interrupt.h>
#include <cleave/dist/internal/launch_support.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist::detail {
namespace {

/// How members agree on the number of a new communicator: the largest that one of them has not seen. Posted and polled
/// like any call, where MPI's own communicators would be made by calls that nothing can interrupt.
class Setup : public Polled {
 public:
  Setup(MpiProcess& process, const std::vector<int>& ranks, const std::string& name)
      : ranks_(ranks), name_(name), proposals_(ranks.size() + 1) {
    uint64_t key = std::hash<std::string>{}(fmt::format("{}: {}", name, fmt::join(ranks, ",")));
    proposals_.back() = {key, process.next_group};
    for (size_t i = 0; i < ranks.size(); ++i) {
      proposals_[i] = proposals_.back();
      if (ranks[i] == process.rank) continue;
      exchange_.receive(process.data, ranks[i], &proposals_[i], sizeof(Proposal), MpiCommunicator::kSetupTag);
      exchange_.send(process.data, ranks[i], &proposals_.back(), sizeof(Proposal), MpiCommunicator::kSetupTag);
    }
  }
  bool advance() override { return exchange_.done(); }
  std::vector<int> missing() override { return exchange_.missing(); }
  void abandon() override { exchange_.abandon(); }
  std::string place() const override { return "make_communicator of " + name_; }

  int number(int me) const {
    int64_t largest = 0;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      largest = std::max(largest, proposals_[i].number);
      if (proposals_[i].key != proposals_.back().key)
        throw CommError(fmt::format(
            "[make_communicator] rank {} makes {} of [{}] while rank {} makes another; the members of several "
            "communicators must make them in the same order",
            me, name_, fmt::join(ranks_, ", "), ranks_[i]));
    }
    return static_cast<int>(largest);
  }

 private:
  struct Proposal {
    uint64_t key = 0;
    int64_t number = 0;
  };
  const std::vector<int>& ranks_;
  std::string name_;
  std::vector<Proposal> proposals_;  // by member; the last is what this rank sends
  Exchange exchange_;
};

class MpiBackend : public WorldBackend {
 public:
  explicit MpiBackend(MpiProcess& process)
      : WorldBackend("mpi", process.rank, process.size, process.local_size), process_(process) {}

  std::unique_ptr<Communicator> make_communicator(const std::vector<int>& ranks, const std::string& axis) override {
    process_.check();
    Setup setup(process_, ranks, axis);
    process_.wait(setup);
    int number = setup.number(rank);
    if (number >= MpiCommunicator::max_groups(process_.max_tag))
      throw CommError(fmt::format(
          "[make_communicator] {} communicators were made, which is all that this MPI can tell apart", number));
    process_.next_group = number + 1;
    auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    std::unique_ptr<Window> window;
    if (ranks.size() > 1 && on_one_host(process_.hosts, ranks))
      window = Window::make(process_, ranks, static_cast<int>(me), axis, MpiCommunicator::kSetupTag);
    return std::make_unique<MpiCommunicator>(process_, ranks, static_cast<int>(me), number, axis, std::move(window));
  }

 private:
  MpiProcess& process_;
};

/// The ranks' second set of messages, for their progress threads; null if MPI does not allow these on every rank.
std::unique_ptr<MpiProcess> make_background(MpiProcess& process, const LaunchOptions& options) {
  int able = process.allows_threads(), all = 0;
  mpi_check(MPI_Allreduce(&able, &all, 1, MPI_INT, MPI_MIN, process.data), "MPI_Allreduce");
  if (!all) return nullptr;
  auto background = std::make_unique<MpiProcess>(options.watchdog);
  background->memory = process.memory;  // what the rank shares with others, its thread does too
  return background;
}

/// All ranks use the same instructions and the same number of threads, or replicas would differ in their last bits.
void make_ranks_alike(World& world) {
  int32_t least[] = {static_cast<int32_t>(cpu::isa()), threads_per_rank(world.local_size())};
  world.communicator().all_reduce(least, 2, DType::i32, ReduceOp::min);
  cpu::limit_isa(static_cast<cpu::Isa>(least[0]));
  set_num_threads(least[1]);
}

/// Runs `main`; false after an error, which was printed and told to the others.
bool run_rank(MpiProcess& process, MpiProcess* background, const LaunchOptions& options,
              std::vector<std::string> arguments, const std::function<void(World&)>& main) {
  auto caller_stream = cleave::detail::random_state();
  cleave::detail::set_random_state({});
  bool ok = true;
  auto fail = [&] {
    if (!std::exchange(ok, false)) return;
    Failure failure = describe_failure(std::current_exception());
    print_error(process.rank, failure.message);
    int origin = failure.origin >= 0 ? failure.origin : process.rank;
    process.announce_failure(origin, announcement(process.rank, failure));
    if (background) background->announce_failure(origin, announcement(process.rank, failure));
  };
  try {
    BlameScope scope([&] { process.blame(); });
    set_checked_mode(options, false);
    auto backend = std::make_unique<MpiBackend>(process);
    backend->arguments = std::move(arguments);
    World world(std::move(backend), background ? std::make_unique<MpiBackend>(*background) : nullptr);
    try {
      make_ranks_alike(world);
      reset_comm_counts();
      main(world);
      world.finish();
    } catch (...) {  // before the world goes: that waits for what was started, which others may never join
      fail();
    }
  } catch (...) { fail(); }
  if (ok) process.announce_return();
  if (ok && background) background->announce_return();
  cleave::detail::set_random_state(caller_stream);
  return ok;
}

}  // namespace

int run_mpi(const LaunchOptions& options, std::vector<std::string> arguments, const std::function<void(World&)>& main) {
  const char* local_ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  bool overlap = overlaps(options, local_ranks ? std::atoi(local_ranks) : 0);
  MpiProcess process(options.watchdog, overlap);
  std::unique_ptr<MpiProcess> background;
  if (overlap && process.size > 1) background = make_background(process, options);
  bool ok = run_rank(process, background.get(), options, std::move(arguments), main);
  bool all_ended = process.wait_for_all_to_end(!ok) && (!background || background->wait_for_all_to_end(!ok));
  if (ok && process.failed()) print_error(process.rank, process.failure());
  ok = ok && !process.failed() && all_ended;
  if (all_ended) {
    if (background) background->close();
    process.close();
    MPI_Finalize();
  } else {
    MPI_Abort(MPI_COMM_WORLD, 1);  // a rank that neither computes to its end nor calls us can be ended in no other way
  }
  return ok ? 0 : 1;
}

}  // namespace cleave::dist::detail
