#include <cleave/dist/internal/threads_call.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

}  // namespace

/// A message that was asked for: its number is taken when it starts, so that waits may come in any order.
class PendingReceive : public Pending {
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

void ThreadCommunicator::run(const Collective& call) {
  backend.world->check(backend.rank);
  if (call.device == Device::Meta && !checked_mode()) return;
  ThreadCall(*this, call, false).wait();
}

std::unique_ptr<Pending> ThreadCommunicator::begin(const Collective& call) {
  backend.world->check(backend.rank);
  bool point_to_point = call.kind == CollectiveKind::send_recv;
  if (call.device == Device::Meta && (point_to_point || !checked_mode())) return std::make_unique<Done>();
  if (!point_to_point) return std::make_unique<ThreadCall>(*this, call, true);
  if (!call.send) return std::make_unique<PendingReceive>(*this, call);
  send_bytes(call.send, payload_bytes(call, 0), call.peer);
  return std::make_unique<Done>();
}

void ThreadCommunicator::send_bytes(const void* data, int64_t bytes, int to) {
  backend.world->check(backend.rank);
  Mailbox& box = group->mailbox(rank(), to);
  auto* p = static_cast<const std::byte*>(data);
  {
    std::lock_guard lock(box.mutex);
    uint64_t number = box.sent.load(std::memory_order_relaxed) + 1;
    box.messages.emplace(number, std::vector<std::byte>(p, p + bytes));
    box.sent.store(number, std::memory_order_seq_cst);
  }
  group->alarm.wake();
}

void ThreadCommunicator::receive_bytes(void* data, int64_t bytes, int from) {
  backend.world->check(backend.rank);
  take(data, bytes, from, expect(from));
}

void ThreadCommunicator::take(void* data, int64_t bytes, int from, uint64_t number) {
  Mailbox& box = group->mailbox(from, rank());
  CallRecord record;
  record.kind = CollectiveKind::send_recv;
  std::strncpy(record.label, "recv", sizeof record.label - 1);
  Waiter(backend, *group, record).until(from, [&] { return box.sent.load(std::memory_order_seq_cst) >= number; });
  std::vector<std::byte> message;
  {
    std::lock_guard lock(box.mutex);
    message = std::move(box.messages.extract(number).mapped());
  }
  if (message.size() != static_cast<size_t>(bytes))
    throw CommError(fmt::format("[recv] rank {} sent {} bytes where rank {} expects {}",
                                group->ranks[static_cast<size_t>(from)], message.size(), backend.rank, bytes));
  if (bytes) std::memcpy(data, message.data(), message.size());
}

std::unique_ptr<Communicator> ThreadBackend::make_communicator(const std::vector<int>& ranks, const std::string& axis) {
  auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return std::make_unique<ThreadCommunicator>(*this, world->group(ranks, axis, creation(ranks, axis)),
                                              static_cast<int>(me));
}

}  // namespace cleave::dist::detail
