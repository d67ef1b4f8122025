#include <cleave/dist/mpi/process.h>

#include <cleave/core/error.h>
#include <cleave/dist/internal/circle.h>
#include <cleave/dist/internal/waiter.h>
#include <cleave/dist/internal/world_backend.h>
#include <cleave/dist/mpi/exchange.h>
#include <cleave/dist/mpi/host_memory.h>
#include <cleave/dist/mpi/hosts.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist::detail {
namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Polls at once for a while, then lets others run, then sleeps.
class Backoff {
 public:
  explicit Backoff(bool crowded) : polls_(crowded ? kSpins : 0) {}
  void pause() {
    ++polls_;
    if (polls_ < kSpins) return;
    if (polls_ < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(polls_ < kNaps ? 50 : 500));
  }

 private:
  static constexpr int kSpins = 100, kYields = 2000, kNaps = 4000;
  int polls_;
};

}  // namespace

Scratch::Block Scratch::take(size_t bytes) {
  auto fits = [&](const Block& b) { return b.bytes >= bytes && b.bytes / 2 <= bytes; };
  auto it = std::find_if(free_.begin(), free_.end(), fits);
  if (it == free_.end()) return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  Block found = std::move(*it);
  free_.erase(it);
  return found;
}

void Scratch::give(Block block) {
  constexpr size_t kKept = 8;
  if (!block.data) return;
  free_.push_back(std::move(block));
  if (free_.size() > kKept) free_.erase(free_.begin());
}

MpiProcess::MpiProcess(double watchdog_seconds, bool several) : watchdog_(watchdog_seconds) {
  int was = 0, provided = 0;
  MPI_Finalized(&was);
  if (was) throw CommError("[launch] MPI has ended in this process: launch once per process under mpirun");
  MPI_Initialized(&was);
  int level = several ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  if (!was) mpi_check(MPI_Init_thread(nullptr, nullptr, level, &provided), "MPI_Init_thread");
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &data), "MPI_Comm_dup");
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(data, &rank);
  MPI_Comm_size(data, &size);
  find_hosts();
  int* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(data, MPI_TAG_UB, &bound, &found);
  if (found) max_tag = *bound;
  crowded = static_cast<unsigned>(local_size) > std::thread::hardware_concurrency();
  memory = std::make_shared<HostMemory>();
  peers_.resize(static_cast<size_t>(size));
  listen();
}

// A host is known by its least rank. CLEAVE_HOSTS says otherwise, for tests of several hosts on one.
void MpiProcess::find_hosts() {
  MPI_Comm host;
  mpi_check(MPI_Comm_split_type(data, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  MPI_Comm_size(host, &local_size);
  int mine[2] = {rank, static_cast<int>(getpid())};
  mpi_check(MPI_Bcast(mine, 1, MPI_INT, 0, host), "MPI_Bcast");
  MPI_Comm_free(&host);
  std::vector<int> all(2 * static_cast<size_t>(size));
  mpi_check(MPI_Allgather(mine, 2, MPI_INT, all.data(), 2, MPI_INT, data), "MPI_Allgather");
  for (size_t r = 0; r < all.size(); r += 2) {
    hosts.push_back(all[r]);
    pids_.push_back(all[r + 1]);
    known_.push_back(all[r] == mine[0] && kill(all[r + 1], 0) == 0);
  }
  if (const char* text = std::getenv("CLEAVE_HOSTS"); text && *text) hosts = parse_hosts(text, size);
}

void MpiProcess::listen() {
  mpi_check(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, 0, control_, &listening_), "MPI_Irecv");
}

void MpiProcess::announce(Kind kind, int origin, const std::string& text, int waits_for) {
  std::lock_guard lock(outgoing_mutex_);  // a rank announces its failure while its progress thread waits
  Outgoing& out = outgoing_.emplace_back();
  out.notice.kind = static_cast<int>(kind);
  out.notice.origin = origin;
  out.notice.waits_for = waits_for;
  std::strncpy(out.notice.text, text.c_str(), sizeof out.notice.text - 1);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    MPI_Request request;
    if (MPI_Isend(&out.notice, sizeof out.notice, MPI_BYTE, r, 0, control_, &request) == MPI_SUCCESS)
      out.requests.push_back(request);
  }
}

// Takes the notices that have arrived.
void MpiProcess::look() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    mpi_check(MPI_Test(&listening_, &flag, &status), "MPI_Test");
    if (!flag) return;
    Peer& peer = peers_[static_cast<size_t>(status.MPI_SOURCE)];
    auto kind = static_cast<Kind>(incoming_.kind);
    if (kind == Kind::failed && failed_ < 0) {
      failed_ = incoming_.origin;
      failure_ = incoming_.text;
    }
    if (kind == Kind::returned) {
      peer.returned_at = Clock::now();
      somebody_returned_ = true;
    }
    peer.ended |= kind == Kind::failed || kind == Kind::returned;
    std::string place = kind == Kind::waiting ? incoming_.text : "";
    peer.told_at = Clock::now();
    if (place != peer.place || incoming_.waits_for != peer.waits_for) peer.since = peer.told_at;
    peer.place = std::move(place);
    peer.waits_for = incoming_.waits_for;
    listen();
  }
}

// A process that was killed is waited for by mpirun's daemon before that sends the signal: its number is free.
void MpiProcess::blame() {
  look();
  if (failed_ >= 0) throw PeerError(failed_, failure_);
  for (int r = 0; r < size; ++r) {
    auto i = static_cast<size_t>(r);
    if (!known_[i] || peers_[i].ended || kill(pids_[i], 0) == 0 || errno != ESRCH) continue;
    failed_ = r;
    failure_ = fmt::format("rank {} died: its process {} has ended without a word", r, pids_[i]);
    throw PeerError(failed_, failure_);
  }
}

void MpiProcess::check() {
  check_interrupt();
  look();
  if (failed_ >= 0) throw PeerError(failed_, failure_);
}

bool MpiProcess::ending() {
  look();
  return failed_ >= 0 || interrupt_signal();
}

void MpiProcess::wait(Polled& call) {
  Backoff backoff(crowded);
  Clock::time_point start = Clock::now();
  Watch state;
  try {
    for (unsigned polls = 1; !call.advance(); ++polls) {
      if (polls % 4 == 0) {
        check();
        for (size_t i = 0; i < started.size(); ++i)
          if (started[i] != &call) started[i]->advance();
        if (somebody_returned_) check_returned(call);
      }
      if (polls % 64 == 0)
        watch(
            seconds_since(start), state, [&] { return call.place(); }, [&] { return call.missing(); });
      backoff.pause();
    }
  } catch (...) {
    call.abandon();
    throw;
  }
  if (state.told) announce_going_on();
}

void MpiProcess::watch(double seconds, Watch& state, const std::function<std::string()>& place,
                       const std::function<std::vector<int>()>& missing) {
  constexpr double kGrace = 0.5;  // for the others' notices of where they wait
  if (watchdog_ <= 0 || seconds <= watchdog_) return;
  std::vector<int> ranks = missing();
  int waits_for = ranks.empty() ? -1 : ranks.front();
  auto tell = [&] {
    announce(Kind::waiting, rank, place(), waits_for);
    state.told_at = seconds;
  };
  if (!state.told || waits_for != state.waits_for) {
    state = {.told = true, .reported = state.reported, .waits_for = waits_for, .since = seconds};
    tell();
  }
  if (seconds > watchdog_ + kGrace && !std::exchange(state.reported, true)) report(seconds, place(), ranks);
  if (seconds < state.since + kCircleSeconds) return;
  std::vector<int> circle = circle_of(waits_for);
  if (circle.empty()) {
    state.circle = {};
    return;
  }
  if (state.circle == Clock::time_point{}) state.circle = Clock::now();
  if (told_since(state.circle, circle)) end_circle(circle, place());
  if (seconds > state.told_at + kCircleSeconds) tell();  // the others want to know that it goes on
}

// That this rank is in, or waits for, as far as the others have told.
std::vector<int> MpiProcess::circle_of(int waits_for) const {
  std::vector<int> told;
  for (const Peer& p : peers_)
    told.push_back(p.place.empty() || seconds_since(p.since) < kCircleSeconds ? -1 : p.waits_for);
  told[static_cast<size_t>(rank)] = waits_for;
  return find_circle(rank, told);
}

// Whether all of the ranks have told of their waits after `when`.
bool MpiProcess::told_since(Clock::time_point when, const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int r) { return r == rank || peers_[static_cast<size_t>(r)].told_at > when; });
}

void MpiProcess::end_circle(const std::vector<int>& circle, const std::string& place) {
  failed_ = circle.front();
  failure_ = circle_text(circle, [&](int r) { return r == rank ? place : peers_[static_cast<size_t>(r)].place; });
  throw PeerError(failed_, failure_);
}

// A rank that returned has done its part of all its calls; what it sent may still be on its way.
void MpiProcess::check_returned(Polled& call) {
  constexpr double kOnItsWay = 0.25;
  auto gone = [&](int r) {
    auto at = peers_[static_cast<size_t>(r)].returned_at;
    return at != Clock::time_point::max() && seconds_since(at) > kOnItsWay;
  };
  bool any = false;
  for (int r = 0; r < size; ++r) any |= gone(r);
  if (!any) return;
  for (int r : call.missing())
    if (gone(r)) miss(r, call.place());
}

void MpiProcess::miss(int world_rank, const std::string& place) {
  failed_ = world_rank;
  failure_ = fmt::format("rank {} returned while rank {} was in {}", world_rank, rank, place);
  throw PeerError(failed_, failure_);
}

void MpiProcess::report(double seconds, const std::string& place, const std::vector<int>& missing) {
  std::string others;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const Peer& peer = peers_[static_cast<size_t>(r)];
    others += fmt::format("{}rank {} {}", others.empty() ? "" : "; ", r,
                          peer.ended           ? "has ended"
                          : peer.place.empty() ? "has told of no wait"
                                               : "waits in " + peer.place);
  }
  std::string text = fmt::format("[watchdog] rank {} has waited {:.1f} s in {} for rank {}: {}\n", rank, seconds, place,
                                 fmt::join(missing, ", rank "), others);
  std::fputs(text.c_str(), stderr);
}

bool MpiProcess::wait_for_all_to_end(bool failed) {
  peers_[static_cast<size_t>(rank)].ended = true;
  Clock::time_point failed_at = Clock::now();
  for (;;) {
    look();
    if (std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.ended; })) return true;
    bool was = failed;
    failed = failed || failed_ >= 0 || interrupt_signal();
    if (failed && !was) failed_at = Clock::now();
    // After a signal mpirun is ending the processes, and soon kills those that are left.
    if (failed && seconds_since(failed_at) > (interrupt_signal() ? 0.5 : 5)) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool MpiProcess::allows_threads() const {
  int provided = 0;
  MPI_Query_thread(&provided);
  return provided == MPI_THREAD_MULTIPLE;
}

void MpiProcess::close() {
  for (Outgoing& out : outgoing_) {
    Clock::time_point start = Clock::now();
    for (int flag = 0; !flag && seconds_since(start) < 1;)
      MPI_Testall(static_cast<int>(out.requests.size()), out.requests.data(), &flag, MPI_STATUSES_IGNORE);
  }
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
}

}  // namespace cleave::dist::detail
