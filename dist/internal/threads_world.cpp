#include <cleave/dist/internal/threads_world.h>

#include <cleave/core/error.h>
#include <cleave/dist/internal/circle.h>
#include <cleave/dist/internal/threads_group.h>

#include <thread>

#include <fmt/format.h>

namespace cleave::dist::detail {

ThreadWorld::ThreadWorld(int ranks, double watchdog_seconds, const SimulatedLink& link)
    : size(ranks),
      watchdog(watchdog_seconds),
      link(link),
      crowded(static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()),
      left_(static_cast<size_t>(ranks)),
      places_(2 * static_cast<size_t>(ranks)) {}

ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::fail(int rank, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (failed_ >= 0) return;
  failed_ = rank;
  message_ = text;
  stopped_.store(true, std::memory_order_seq_cst);
}

int ThreadWorld::first_failed() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

// An interrupt stops the world before it is thrown: a rank that leaves a collective must know that nobody reads its
// buffers any more, and readers look at `stopped`.
void ThreadWorld::give_up(int rank) {
  if (interrupt_signal()) {
    fail(rank, fmt::format("rank {} was interrupted", rank));
    check_interrupt();
  }
  std::lock_guard lock(mutex_);
  throw PeerError(failed_, message_);
}

std::shared_ptr<ThreadGroup> ThreadWorld::group(const std::vector<int>& ranks, const std::string& axis, int creation) {
  std::lock_guard lock(mutex_);
  auto it = groups_.try_emplace({ranks, axis, creation}).first;
  Entry& entry = it->second;
  if (!entry.group) entry.group = std::make_shared<ThreadGroup>(ranks, axis);
  auto found = entry.group;
  if (++entry.joined == ranks.size()) groups_.erase(it);
  return found;
}

void ThreadWorld::set_place(int rank, bool background, const std::string& text, int waits_for) {
  std::lock_guard lock(mutex_);
  auto now = std::chrono::steady_clock::now();
  place(rank, background) = {text, waits_for, now, now};
}

void ThreadWorld::set_waits_for(int rank, bool background, int waits_for) {
  std::lock_guard lock(mutex_);
  Place& p = place(rank, background);
  p.waits_for = waits_for;
  p.seen = std::chrono::steady_clock::now();
}

void ThreadWorld::end_circle(int rank, bool background) {
  std::unique_lock lock(mutex_);
  auto now = std::chrono::steady_clock::now();
  std::chrono::duration<double> settled(kCircleSeconds), fresh(kCircleSeconds / 2);
  std::vector<int> waits_for;
  for (int r = 0; r < size; ++r) {
    const Place& p = place(r, background);
    waits_for.push_back(p.text.empty() || now - p.since < settled || now - p.seen > fresh ? -1 : p.waits_for);
  }
  std::vector<int> circle = find_circle(rank, waits_for);
  if (circle.empty()) return;
  std::string text = circle_text(circle, [&](int r) { return place(r, background).text; });
  lock.unlock();
  fail(circle.front(), text);
}

std::string ThreadWorld::places(const std::vector<int>& ranks) const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (int r : ranks) {
    const std::string& where = places_[static_cast<size_t>(r)].text;
    const std::string& behind = places_[static_cast<size_t>(size + r)].text;
    text += fmt::format("{}rank {} {}{}", text.empty() ? "" : "; ", r,
                        has_left(r)     ? "has returned"
                        : where.empty() ? "waits in no collective"
                                        : "waits in " + where,
                        behind.empty() ? "" : " and, beside it, in " + behind);
  }
  return text;
}

}  // namespace cleave::dist::detail
