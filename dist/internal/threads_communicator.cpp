#include <cleave/dist/internal/threads_group.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadBackend& backend, std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(rank, group->shared.size(), group->shared.name),
        backend_(backend),
        group_(std::move(group)),
        peers_(backend, group_->shared.ranks),
        rank_(group_->shared, rank, peers_, backend.started) {}

 private:
  void run(const Collective& call) override {
    backend_.world->check(backend_.rank);
    if (call.device == Device::Meta && !checked_mode()) return;
    const SimulatedLink& link = backend_.world->link;
    if (link.slow()) std::this_thread::sleep_for(link.time(payload_bytes(call, rank())));
    SharedCall(rank_, call, sequence(), false).wait();
  }
  std::unique_ptr<Pending> begin(const Collective& call) override;
  void send_bytes(const void* data, int64_t bytes, int to) override;
  void receive_bytes(void* data, int64_t bytes, int from) override {
    backend_.world->check(backend_.rank);
    take(data, bytes, from, expect(from));
  }
  uint64_t expect(int from) { return ++expected_[from]; }
  void take(void* data, int64_t bytes, int from, uint64_t number);
  class PendingReceive;

  ThreadBackend& backend_;
  const std::shared_ptr<ThreadGroup> group_;
  ThreadPeers peers_;
  SharedRank rank_;
  std::map<int, uint64_t> expected_;  // messages asked for, by sender
};

/// A message that was asked for: its number is taken when it starts, so that waits may come in any order.
class ThreadCommunicator::PendingReceive : public Pending {
 public:
  PendingReceive(ThreadCommunicator& comm, const Collective& call)
      : comm_(comm), data_(call.recv), bytes_(payload_bytes(call, 0)), from_(call.peer), number_(comm.expect(from_)) {}
  void wait() override {
    if (std::exchange(over_, true)) return;
    comm_.take(data_, bytes_, from_, number_);
  }

 private:
  ThreadCommunicator& comm_;
  void* data_;
  int64_t bytes_;
  int from_;
  uint64_t number_;
  bool over_ = false;
};

std::unique_ptr<Pending> ThreadCommunicator::begin(const Collective& call) {
  backend_.world->check(backend_.rank);
  bool point_to_point = call.kind == CollectiveKind::send_recv;
  if (call.device == Device::Meta && (point_to_point || !checked_mode())) return std::make_unique<Done>();
  if (!point_to_point) return std::make_unique<SharedCall>(rank_, call, sequence(), true);
  if (!call.send) return std::make_unique<PendingReceive>(*this, call);
  send_bytes(call.send, payload_bytes(call, 0), call.peer);
  return std::make_unique<Done>();
}

void ThreadCommunicator::send_bytes(const void* data, int64_t bytes, int to) {
  backend_.world->check(backend_.rank);
  Mailbox& box = group_->mailbox(rank(), to);
  auto* p = static_cast<const std::byte*>(data);
  {
    std::lock_guard lock(box.mutex);
    uint64_t number = box.sent.load(std::memory_order_relaxed) + 1;
    box.messages.emplace(number, std::vector<std::byte>(p, p + bytes));
    box.sent.store(number, std::memory_order_seq_cst);
  }
  group_->shared.alarm().wake();
}

void ThreadCommunicator::take(void* data, int64_t bytes, int from, uint64_t number) {
  Mailbox& box = group_->mailbox(from, rank());
  Collective call{.kind = CollectiveKind::send_recv, .label = "recv"};
  Waiter(peers_, group_->shared, call, 0).until(from, [&] {
    return box.sent.load(std::memory_order_seq_cst) >= number;
  });
  std::vector<std::byte> message;
  {
    std::lock_guard lock(box.mutex);
    message = std::move(box.messages.extract(number).mapped());
  }
  if (message.size() != static_cast<size_t>(bytes))
    throw CommError(fmt::format("[recv] rank {} sent {} bytes where rank {} expects {}",
                                group_->shared.ranks[static_cast<size_t>(from)], message.size(), backend_.rank, bytes));
  if (bytes) std::memcpy(data, message.data(), message.size());
}

}  // namespace

std::unique_ptr<Communicator> ThreadBackend::make_communicator(const std::vector<int>& ranks, const std::string& axis) {
  auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return std::make_unique<ThreadCommunicator>(*this, world->group(ranks, axis, creation(ranks, axis)),
                                              static_cast<int>(me));
}

}  // namespace cleave::dist::detail
