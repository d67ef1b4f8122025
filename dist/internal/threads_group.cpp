#include <cleave/dist/internal/circle.h>
#include <cleave/dist/internal/threads_group.h>

#include <cstdio>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist::detail {
namespace {

constexpr std::align_val_t kPage{4096};

}  // namespace

void ThreadGroup::Free::operator()(std::byte* p) const { ::operator delete[](p, kPage); }

std::unique_ptr<std::byte[], ThreadGroup::Free> ThreadGroup::allocate(size_t members) {
  size_t bytes = SharedGroup::bytes(static_cast<int>(members), kSlot);
  auto* memory = static_cast<std::byte*>(::operator new[](members* bytes, kPage));
  for (size_t i = 0; i < members; ++i) SharedGroup::construct(memory + i * bytes, static_cast<int>(members), kSlot);
  return std::unique_ptr<std::byte[], Free>(memory);
}

std::vector<std::byte*> ThreadGroup::parts(std::byte* memory, size_t members) {
  std::vector<std::byte*> parts;
  for (size_t i = 0; i < members; ++i)
    parts.push_back(memory + i * SharedGroup::bytes(static_cast<int>(members), kSlot));
  return parts;
}

ThreadGroup::ThreadGroup(const std::vector<int>& world_ranks, const std::string& axis)
    : memory_(allocate(world_ranks.size())),
      shared(world_ranks, axis, kSlot, parts(memory_.get(), world_ranks.size())) {}

void ThreadPeers::peer_left(int member, const std::string& place) {
  int peer = ranks_[static_cast<size_t>(member)];
  rank_.world->fail(peer, fmt::format("rank {} returned while rank {} was in {}", peer, rank_.rank, place));
  rank_.world->give_up(rank_.rank);
}

namespace {
int first_missing(const Waiter& waiter) {
  std::vector<int> missing = waiter.missing();
  return missing.empty() ? -1 : missing.front();
}
}  // namespace

void ThreadPeers::sleeps(Waiter& waiter) {
  rank_.world->set_place(rank_.rank, rank_.background, waiter.place(), first_missing(waiter));
}

void ThreadPeers::slept(Waiter& waiter, double seconds) {
  double limit = rank_.world->watchdog;
  if (limit <= 0) return;
  if (seconds > kCircleSeconds / 2) rank_.world->set_waits_for(rank_.rank, rank_.background, first_missing(waiter));
  if (seconds > limit + kCircleSeconds) rank_.world->end_circle(rank_.rank, rank_.background);
  if (waiter.watch.reported || seconds <= limit) return;
  waiter.watch.reported = true;
  std::vector<int> others;
  for (int r = 0; r < rank_.size; ++r)
    if (r != rank_.rank) others.push_back(r);
  std::string text = fmt::format("[watchdog] rank {} has waited {:.1f} s in {} for rank {}: {}\n", rank_.rank, seconds,
                                 waiter.place(), fmt::join(waiter.missing(), ", rank "), rank_.world->places(others));
  std::fputs(text.c_str(), stderr);
}

}  // namespace cleave::dist::detail
