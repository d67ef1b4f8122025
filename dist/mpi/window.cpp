#include <cleave/dist/mpi/window.h>

#include <cleave/dist/mpi/round.h>

#include <algorithm>

namespace cleave::dist::detail {
namespace {

std::vector<std::byte*> parts(const std::vector<Segment>& segments) {
  std::vector<std::byte*> parts;
  for (const Segment& s : segments) parts.push_back(s.data());
  return parts;
}

}  // namespace

std::byte* MpiPeers::address(int member, const Address& address) {
  int rank = ranks_[static_cast<size_t>(member)];
  return process_.memory->address(rank, process_.pid_of(rank), address);
}

void MpiPeers::progress() {
  for (size_t i = 0; i < process_.started.size(); ++i) process_.started[i]->advance();
}

void MpiPeers::give_up() {
  for (;;) process_.check();
}

void MpiPeers::slept(Waiter& waiter, double seconds) {
  process_.watch(
      seconds, waiter.told, waiter.reported, [&] { return waiter.place(); }, [&] { return waiter.missing(); });
}

void MpiPeers::woke(Waiter& waiter) {
  if (waiter.told) process_.announce_going_on();
}

Window::Window(MpiProcess& process, const std::vector<int>& ranks, int me, const std::string& name,
               std::vector<Segment> segments)
    : segments_(std::move(segments)),
      group_(ranks, name, kSlot, parts(segments_)),
      peers_(process, group_.ranks),
      rank_(group_, me, peers_, started_) {}

std::unique_ptr<Window> Window::make(MpiProcess& process, const std::vector<int>& ranks, int me,
                                     const std::string& name, int tag) {
  size_t bytes = SharedGroup::bytes(static_cast<int>(ranks.size()), kSlot);
  std::string place = "make_communicator of " + name;
  auto mine = Segment::create(bytes);
  if (mine) SharedGroup::construct(mine->data(), static_cast<int>(ranks.size()), kSlot);

  std::vector<int32_t> offers(ranks.size(), mine ? mine->descriptor() : -1), offered = offers;
  exchange_round(process, ranks, place, tag, offers, offered);
  std::vector<Segment> segments;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto part = static_cast<int>(i) == me ? std::move(mine) : Segment::open(process.pid_of(ranks[i]), offered[i], bytes);
    if (!part) break;
    segments.push_back(std::move(*part));
  }
  std::vector<int32_t> reached(ranks.size(), segments.size() == ranks.size()), all = reached;
  exchange_round(process, ranks, place, tag, reached, all);
  if (std::count(all.begin(), all.end(), 1) != static_cast<ptrdiff_t>(ranks.size())) return nullptr;
  segments[static_cast<size_t>(me)].close();  // everyone has mapped it
  return std::unique_ptr<Window>(new Window(process, ranks, me, name, std::move(segments)));
}

bool Window::run(const Collective& call, uint64_t sequence) {
  SharedCall shared(rank_, call, sequence, false);
  shared.wait();
  return !shared.left_to_messages();
}

}  // namespace cleave::dist::detail
