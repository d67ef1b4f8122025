#include <cleave/dist/launch.h>

#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/dist/internal/interrupt.h>
#include <cleave/dist/internal/launch_support.h>
#include <cleave/dist/internal/threads_group.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace cleave::dist {
namespace {

thread_local bool checked = true;

template <class T>
T parse(std::string_view text, T least, const std::string& what) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    throw ValueError(fmt::format("[launch] {} must be a number from {}, not '{}'", what, least, text));
  return value;
}

template <class T>
std::optional<T> environment(const char* name, T least) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  return parse<T>(text, least, name);
}

std::optional<Overlap> read_overlap(std::string_view text) {
  if (text == "on") return Overlap::on;
  if (text == "off") return Overlap::off;
  if (text == "auto") return Overlap::automatic;
  return std::nullopt;
}

Overlap parse_overlap(std::string_view text, const char* what) {
  auto overlap = read_overlap(text);
  if (!overlap) throw ValueError(fmt::format("[launch] {} must be on, off or auto, not '{}'", what, text));
  return *overlap;
}

struct CommandLine {
  std::optional<int> ranks;
  std::optional<Overlap> overlap;
  std::vector<std::string> arguments;
};

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  std::vector<char*> kept, taken;
  bool open = true;
  for (int i = 1; i < argc; ++i) {
    std::string_view text = argv[i];
    if (text == "--") open = false;
    if (open && text.starts_with("--ranks=")) {
      line.ranks = parse(text.substr(8), 1, "--ranks");
      taken.push_back(argv[i]);
    } else if (open && text == "--ranks") {
      line.ranks = parse(i + 1 < argc ? std::string_view(argv[i + 1]) : "", 1, "--ranks");
      taken.insert(taken.end(), {argv[i], argv[i + 1]});
      ++i;
    } else if (open && text.starts_with("--overlap=")) {
      line.overlap = parse_overlap(text.substr(10), "--overlap");
      taken.push_back(argv[i]);
    } else if (open && text == "--overlap") {
      taken.push_back(argv[i]);
      line.overlap = i + 1 < argc ? read_overlap(argv[i + 1]) : std::nullopt;
      if (line.overlap) taken.push_back(argv[++i]);
      if (!line.overlap) line.overlap = Overlap::on;
    } else {
      kept.push_back(argv[i]);
      line.arguments.emplace_back(text);
    }
  }
  if (argc > 0) std::copy(taken.begin(), taken.end(), std::copy(kept.begin(), kept.end(), argv + 1));
  return line;
}

LaunchOptions options_of(const CommandLine& line) {
  LaunchOptions options;
  options.ranks = line.ranks.value_or(1);
  if (auto seconds = environment<double>("CLEAVE_WATCHDOG", 0)) options.watchdog = *seconds;
  const char* overlap = std::getenv("CLEAVE_OVERLAP");
  if (overlap && *overlap) options.overlap = parse_overlap(overlap, "CLEAVE_OVERLAP");
  if (line.overlap) options.overlap = *line.overlap;
  return options;
}

/// All ranks as threads; the caller waits. Every rank, also a single one, has a thread of its own: ranks start alike,
/// whatever the caller drew from its random stream or cached before, and leave that untouched.
class ThreadLaunch {
 public:
  ThreadLaunch(const LaunchOptions& options, std::vector<std::string> arguments,
               const std::function<void(World&)>& main)
      : options_(options),
        arguments_(std::move(arguments)),
        main_(main),
        threads_(detail::threads_per_rank(options.ranks)),
        world_(std::make_shared<detail::ThreadWorld>(options.ranks, options.watchdog, options.link)),
        errors(static_cast<size_t>(options.ranks)) {}

  void run(const std::function<void(int, const std::string&)>& on_error) {
    std::vector<std::thread> ranks;
    std::exception_ptr no_thread;
    try {
      for (int r = 0; r < options_.ranks; ++r) ranks.emplace_back([this, r, &on_error] { run_rank(r, on_error); });
    } catch (...) {
      no_thread = std::current_exception();
      world_->fail(static_cast<int>(ranks.size()), fmt::format("rank {} failed: no thread for it", ranks.size()));
    }
    for (std::thread& t : ranks) t.join();
    if (no_thread) std::rethrow_exception(no_thread);
  }

  /// The error of the rank that failed first; null: none did.
  std::exception_ptr first_error() const {
    int first = world_->first_failed();
    if (first >= 0 && errors[static_cast<size_t>(first)]) return errors[static_cast<size_t>(first)];
    for (const auto& e : errors)  // a rank that returned early has no error; those who missed it have
      if (e) return e;
    return nullptr;
  }

 private:
  void run_rank(int rank, const std::function<void(int, const std::string&)>& on_error) {
    try {
      set_num_threads(threads_);
      detail::set_checked_mode(options_, true);
      std::unique_ptr<WorldBackend> backend, background;
      if (options_.ranks == 1) {
        backend = detail::make_self_backend();
      } else {
        backend = std::make_unique<detail::ThreadBackend>(world_, rank);
        if (detail::overlaps(options_, options_.ranks))
          background = std::make_unique<detail::ThreadBackend>(world_, rank, true);
      }
      backend->arguments = arguments_;
      World world(std::move(backend), std::move(background));
      try {
        main_(world);
        world.finish();
      } catch (...) {  // before the world goes: that waits for what was started, which others may never join
        announce(rank);
        throw;
      }
      world_->leave(rank);
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      on_error(rank, announce(rank).message);
    }
  }

  /// Tells the others of the exception being handled.
  detail::Failure announce(int rank) {
    detail::Failure failure = detail::describe_failure(std::current_exception());
    world_->fail(failure.origin >= 0 ? failure.origin : rank, detail::announcement(rank, failure));
    return failure;
  }

  LaunchOptions options_;
  std::vector<std::string> arguments_;
  const std::function<void(World&)>& main_;
  int threads_;
  std::shared_ptr<detail::ThreadWorld> world_;

 public:
  std::vector<std::exception_ptr> errors;
};

int launch_under_mpi(const CommandLine& line, int ranks, [[maybe_unused]] const std::function<void(World&)>& main) {
  if (line.ranks.value_or(ranks) != ranks)
    throw ValueError(fmt::format("[launch] --ranks {} under mpirun -n {}: leave --ranks away, mpirun makes the ranks",
                                 *line.ranks, ranks));
#if CLEAVE_WITH_MPI
  return detail::run_mpi(options_of(line), line.arguments, main);
#else
  throw CommError("[launch] started by mpirun, but cleave was built without MPI; build it where MPI is installed");
#endif
}

}  // namespace

namespace detail {

int threads_per_rank(int local_ranks) {
  if (auto threads = environment<int>("CLEAVE_THREADS", 1)) return *threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, local_ranks));
}

bool overlaps(const LaunchOptions& options, int local_ranks) {
  if (options.overlap != Overlap::automatic) return options.overlap == Overlap::on;
  return local_ranks > 0 && static_cast<int>(std::thread::hardware_concurrency()) >= 2 * local_ranks;
}

void set_checked_mode(const LaunchOptions& options, bool backend_default) {
  checked = options.checked >= 0 ? options.checked != 0
                                 : environment<int>("CLEAVE_CHECKED", 0).value_or(backend_default) != 0;
}

Failure describe_failure(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& e) { return {e.what(), e.rank}; } catch (const std::exception& e) {
    return {e.what()};
  } catch (...) { return {"an exception that is no std::exception"}; }
}

std::string announcement(int rank, const Failure& failure) {
  return failure.origin >= 0 ? failure.message : fmt::format("rank {} failed: {}", rank, failure.message);
}

void print_error(int rank, const std::string& message) {
  std::string text = fmt::format("rank {}: {}\n", rank, message);
  std::fputs(text.c_str(), stderr);
}

int mpi_ranks_in_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (auto ranks = environment<int>(name, 1)) return *ranks;
  return 0;
}

}  // namespace detail

int launch(int argc, char** argv, const std::function<void(World&)>& main) {
  int mpi_rank = 0;
  try {
    int mpi_ranks = detail::mpi_ranks_in_environment();
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
      if (mpi_ranks && std::getenv(name)) mpi_rank = std::atoi(std::getenv(name));
    CommandLine line = read_command_line(argc, argv);
    detail::InterruptScope interrupts;
    if (mpi_ranks) return launch_under_mpi(line, mpi_ranks, main);
    ThreadLaunch ranks(options_of(line), line.arguments, main);
    ranks.run(detail::print_error);
    return ranks.first_error() ? 1 : 0;
  } catch (const std::exception& e) {
    detail::print_error(mpi_rank, e.what());
    return 1;
  }
}

void run_ranks(const LaunchOptions& options, const std::function<void(World&)>& main) {
  if (options.ranks < 1) throw ValueError(fmt::format("[run_ranks] {} ranks; at least 1 is needed", options.ranks));
  ThreadLaunch ranks(options, {}, main);
  ranks.run([](int, const std::string&) {});
  if (auto error = ranks.first_error()) std::rethrow_exception(error);
}

void simulate(int ranks, int rank, const std::function<void(World&)>& main, Overlap overlap) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw ValueError(fmt::format("[simulate] rank {} of {} ranks; it must be from 0 below their number", rank, ranks));
  std::exception_ptr error;
  std::thread([&] {
    try {
      set_num_threads(detail::threads_per_rank(1));
      auto backend = detail::make_simulated_backend(ranks, rank);
      backend->overlaps = overlap == Overlap::on;
      World world(std::move(backend));
      main(world);
    } catch (...) { error = std::current_exception(); }
  }).join();
  if (error) std::rethrow_exception(error);
}

bool checked_mode() { return checked; }
void set_checked_mode(bool on) { checked = on; }

}  // namespace cleave::dist
