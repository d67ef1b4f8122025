#include <cleave/dist/mpi/window.h>

#include <cleave/core/error.h>
#include <cleave/dist/mpi/round.h>

#include <algorithm>
#include <cstring>
#include <random>

#include <sys/uio.h>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

std::vector<std::byte*> parts(const std::vector<Segment>& segments) {
  std::vector<std::byte*> parts;
  for (const Segment& s : segments) parts.push_back(s.data());
  return parts;
}

/// What a rank needs to reach another's memory: its part of the window, the number at the end of it, by which a rank
/// sees that it opened that part (process numbers may mean another process in another container), and where a number
/// is to try reading other memory.
struct Offer {
  int32_t descriptor = -1;
  uint32_t nonce = 0;
  uint64_t magic = 0;
};
const uint64_t kMagic = 0x636c65617665;
uint64_t pointer(const void* p) { return reinterpret_cast<uint64_t>(p); }

/// False: the system refuses, or the process is gone.
bool read_process(int pid, uint64_t from, int64_t bytes, void* to) {
#ifdef __linux__
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    iovec local = {out, static_cast<size_t>(bytes)}, remote = {reinterpret_cast<void*>(from), local.iov_len};
    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n <= 0) return false;
    out += n;
    from += static_cast<uint64_t>(n);
    bytes -= n;
  }
  return true;
#else
  (void)pid, (void)from, (void)to;
  return bytes == 0;
#endif
}

}  // namespace

void MpiPeers::read_remote(int member, uint64_t pointer, int64_t bytes, void* to) {
  int rank = ranks_[static_cast<size_t>(member)];
  if (!read_process(process_.pid_of(rank), pointer, bytes, to))
    throw CommError(fmt::format("[mpi] {} bytes of rank {} cannot be read", bytes, rank));
}

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
      seconds, waiter.watch, [&] { return waiter.place(); }, [&] { return waiter.missing(); });
}

void MpiPeers::woke(Waiter& waiter) {
  if (waiter.watch.told) process_.announce_going_on();
}

Window::Window(MpiProcess& process, const std::vector<int>& ranks, int me, const std::string& name,
               std::vector<Segment> segments, bool reads_remote)
    : segments_(std::move(segments)),
      group_(ranks, name, kSlot, parts(segments_)),
      peers_(process, group_.ranks, reads_remote),
      rank_(group_, me, peers_, started_) {}

std::unique_ptr<Window> Window::make(MpiProcess& process, const std::vector<int>& ranks, int me,
                                     const std::string& name, int tag) {
  size_t used = SharedGroup::bytes(static_cast<int>(ranks.size()), kSlot);
  size_t bytes = used + sizeof(uint32_t);
  std::string place = "make_communicator of " + name;
  auto mine = Segment::create(bytes);
  uint32_t nonce = std::random_device{}();
  if (mine) {
    SharedGroup::construct(mine->data(), static_cast<int>(ranks.size()), kSlot);
    std::memcpy(mine->data() + used, &nonce, sizeof nonce);
  }
  std::vector<Offer> offers(ranks.size(), {mine ? mine->descriptor() : -1, nonce, pointer(&kMagic)}), offered = offers;
  exchange_round(process, ranks, place, tag, offers, offered);
  std::vector<Segment> segments;
  int reach = 2;
  for (size_t i = 0; i < ranks.size(); ++i) {
    int pid = process.pid_of(ranks[i]);
    auto part = static_cast<int>(i) == me ? std::move(mine) : Segment::open(pid, offered[i].descriptor, bytes);
    uint32_t found = 0;
    if (part) std::memcpy(&found, part->data() + used, sizeof found);
    if (!part || found != offered[i].nonce) {
      reach = 0;
      break;
    }
    segments.push_back(std::move(*part));
    uint64_t magic = 0;
    if (!read_process(pid, offered[i].magic, sizeof magic, &magic) || magic != kMagic) reach = 1;
  }
  std::vector<int32_t> reached(ranks.size(), reach), all = reached;
  exchange_round(process, ranks, place, tag, reached, all);
  int least = *std::min_element(all.begin(), all.end());
  if (least == 0) return nullptr;
  segments[static_cast<size_t>(me)].close();  // everyone has mapped it
  return std::unique_ptr<Window>(new Window(process, ranks, me, name, std::move(segments), least == 2));
}

}  // namespace cleave::dist::detail
