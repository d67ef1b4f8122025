#include <cleave/dist/internal/threads_group.h>

#include <cleave/core/error.h>

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist::detail {

using std::chrono::steady_clock;

Waiter::Sleep::Sleep(Waiter& w) : waiter(w) { w.rank_.world->set_place(w.rank_.rank, place(w.call_, w.group_.name)); }
Waiter::Sleep::~Sleep() { waiter.rank_.world->set_place(waiter.rank_.rank, ""); }
bool Waiter::Sleep::overdue() const {
  double limit = waiter.rank_.world->watchdog;
  return limit > 0 && !waiter.reported_ && std::chrono::duration<double>(steady_clock::now() - since).count() > limit;
}

void Waiter::peer_left(int member) {
  int peer = group_.ranks[static_cast<size_t>(member)];
  rank_.world->fail(
      peer, fmt::format("rank {} returned while rank {} was in {}", peer, rank_.rank, place(call_, group_.name)));
  rank_.world->give_up(rank_.rank);
}

void Waiter::report(const Sleep& sleep, int member) {
  reported_ = true;
  std::vector<int> missing, others;
  for (int i = 0; i < group_.size(); ++i)
    if (counter_ ? (group_.member(i).*counter_).load(std::memory_order_acquire) < number_ : i == member)
      missing.push_back(group_.ranks[static_cast<size_t>(i)]);
  for (int r = 0; r < rank_.size; ++r)
    if (r != rank_.rank) others.push_back(r);
  double seconds = std::chrono::duration<double>(steady_clock::now() - sleep.since).count();
  std::string text = fmt::format("[watchdog] rank {} has waited {:.1f} s in {} for rank {}: {}\n", rank_.rank, seconds,
                                 place(call_, group_.name), fmt::join(missing, ", rank "), rank_.world->places(others));
  std::fputs(text.c_str(), stderr);
}

}  // namespace cleave::dist::detail
