#include <cleave/dist/internal/threads_call.h>

#include <cleave/core/error.h>
#include <cleave/dist/internal/reduce.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

std::byte* at(void* p, int64_t elements, DType dtype) { return static_cast<std::byte*>(p) + elements * size_of(dtype); }
const std::byte* at(const void* p, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(p) + elements * size_of(dtype);
}

void copy(void* to, const void* from, int64_t elements, DType dtype) {
  if (elements && to != from) std::memmove(to, from, static_cast<size_t>(elements * size_of(dtype)));
}

/// The use of others' buffers. Together with `abandon` it sees to it that nobody reads what a failed rank has freed:
/// either this rank sees that the world stopped, or the one that leaves sees that this rank is busy.
struct Busy {
  Busy(Member& member, ThreadBackend& rank) : member(member) {
    member.busy.store(true, std::memory_order_seq_cst);
    if (!rank.world->stopped()) return;
    member.busy.store(false, std::memory_order_release);
    rank.world->give_up(rank.rank);
  }
  ~Busy() { member.busy.store(false, std::memory_order_release); }
  Member& member;
};

}  // namespace

ThreadCall::ThreadCall(ThreadCommunicator& communicator, const Collective& call, bool started)
    : comm_(communicator),
      call_(call),
      number_(comm_.next_number()),
      waiter_(comm_.backend, *comm_.group, comm_.self().post(number_).record) {
  if (number_ >= comm_.free_until) {
    // The record in the ring is the older call's until everyone is done with it.
    waiter_.all(&Member::done, number_ - kRing + 1);
    uint64_t least = ~uint64_t{0};
    for (Member& m : comm_.group->members) least = std::min(least, m.done.load(std::memory_order_acquire));
    comm_.free_until = least + kRing;
  }
  post();
  if (started) comm_.backend.started.push_back(this);
}

ThreadCall::~ThreadCall() {
  if (over_) return;
  try {
    wait();
  } catch (...) {  // the buffers are free to go, and a destructor has nobody to tell
  }
}

void ThreadCall::post() {
  Member& me = comm_.self();
  Post& mine = me.post(number_);
  mine.record.assign(call_, comm_.sequence());
  mine.checked = checked_mode();
  bool moves = call_.device == Device::Cpu && (call_.kind != CollectiveKind::broadcast || call_.peer == comm_.rank());
  int64_t bytes = moves ? payload_bytes(call_, comm_.rank()) : 0;
  mine.copied = bytes <= kSlot;
  mine.send = mine.copied ? mine.slot : call_.send;
  mine.data = call_.recv;
  if (mine.copied && bytes) std::memcpy(mine.slot, call_.send, static_cast<size_t>(bytes));
  if (call_.kind == CollectiveKind::all_to_all) {
    mine.send_counts.assign(call_.send_counts.begin(), call_.send_counts.end());
    mine.recv_counts.assign(call_.recv_counts.begin(), call_.recv_counts.end());
  }
  me.posted.store(number_ + 1, std::memory_order_seq_cst);
  comm_.group->alarm.wake();
}

bool ThreadCall::everyone_posted() const {
  return std::all_of(comm_.group->members.begin(), comm_.group->members.end(),
                     [this](const Member& m) { return m.posted.load(std::memory_order_acquire) > number_; });
}

void ThreadCall::wait() {
  if (!over_) {
    over_ = true;
    auto& started = comm_.backend.started;
    try {
      while (!worked_) {  // calls of one communicator are worked on in order
        auto first = std::find_if(started.begin(), started.end(), [this](auto* c) { return &c->comm_ == &comm_; });
        ThreadCall* next = first == started.end() ? this : *first;
        next->waiter_.all(&Member::posted, next->number_ + 1);
        if (!next->worked_) next->work();
      }
      if (!all_copied_) waiter_.all(&Member::done, number_ + 1);
    } catch (...) {
      std::erase(started, this);
      abandon();
      throw;
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadCall::work() {
  std::erase(comm_.backend.started, this);
  Member& me = comm_.self();
  for (int i = 0; i < comm_.size(); ++i) all_copied_ &= post_of(i).copied;
  {
    std::optional<Busy> busy;
    if (!all_copied_) busy.emplace(me, comm_.backend);
    try {
      compare();
      if (call_.device == Device::Cpu) move();
    } catch (...) { error_ = std::current_exception(); }
  }
  worked_ = true;
  me.done.store(number_ + 1, std::memory_order_seq_cst);
  comm_.group->alarm.wake();
}

// It costs no synchronisation of its own, so it is done in every mode. All members see the same posts and so come to
// the same verdict.
void ThreadCall::compare() {
  const Post& first = post_of(0);
  for (int i = 1; i < comm_.size(); ++i) {
    const Post& other = post_of(i);
    if (other.record == first.record) continue;
    throw CommError(disagreement(comm_.sequence(), comm_.name(), comm_.group->ranks[0],
                                 comm_.group->ranks[static_cast<size_t>(i)], describe(first.record),
                                 describe(other.record)));
  }
}

void ThreadCall::move() {
  Member& me = comm_.self();
  DType t = call_.dtype;
  switch (call_.kind) {
    case CollectiveKind::all_reduce:
      return reduce_everywhere(me);
    case CollectiveKind::reduce_scatter: {
      auto mine = static_cast<size_t>(comm_.rank());
      int64_t begin = sum(call_.send_counts.first(mine));
      auto& in = comm_.inputs;
      in.clear();
      for (int i = 0; i < comm_.size(); ++i) in.push_back(at(post_of(i).send, begin, t));
      void* out = call_.recv;
      return reduce_elements(t, call_.op, in, {&out, 1}, 0, call_.send_counts[mine]);
    }
    case CollectiveKind::all_gather: {
      int64_t offset = 0;
      for (int i = 0; i < comm_.size(); ++i) {
        int64_t n = call_.recv_counts[static_cast<size_t>(i)];
        copy(at(call_.recv, offset, t), post_of(i).send, n, t);
        offset += n;
      }
      return;
    }
    case CollectiveKind::broadcast:
      if (comm_.rank() != call_.peer) copy(call_.recv, post_of(call_.peer).send, call_.count, t);
      return;
    case CollectiveKind::all_to_all:
      return exchange(me);
    case CollectiveKind::send_recv:
    case CollectiveKind::barrier:
      return;
  }
}

// Small: everyone sums all slots. Large: the owner of each block, of whole cache lines, sums it and stores it to all.
void ThreadCall::reduce_everywhere(Member& me) {
  bool copied = me.post(number_).copied;
  auto& in = comm_.inputs;
  auto& out = comm_.outputs;
  in.clear();
  out.clear();
  for (int i = 0; i < comm_.size(); ++i) {
    in.push_back(copied ? post_of(i).send : post_of(i).data);
    if (!copied) out.push_back(post_of(i).data);
  }
  if (copied) {
    out.push_back(call_.recv);
    return reduce_elements(call_.dtype, call_.op, in, out, 0, call_.count);
  }
  constexpr int64_t kLine = 64;
  Block block = balanced_block((call_.count + kLine - 1) / kLine, comm_.size(), comm_.rank());
  reduce_elements(call_.dtype, call_.op, in, out, block.offset * kLine,
                  std::min(call_.count, (block.offset + block.size) * kLine));
}

void ThreadCall::exchange(Member& me) {
  auto n = static_cast<size_t>(comm_.size()), self = static_cast<size_t>(comm_.rank());
  bool all_pairs = me.post(number_).checked;  // then everyone finds the fault, else the receiver
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      if (!all_pairs && to != self) continue;
      int64_t sent = post_of(static_cast<int>(from)).send_counts[to];
      int64_t expected = post_of(static_cast<int>(to)).recv_counts[from];
      if (sent == expected) continue;
      throw CommError(fmt::format("[{}] rank {} sends {} elements to rank {}, which expects {} (call {} on {})",
                                  call_.label, comm_.group->ranks[from], sent, comm_.group->ranks[to], expected,
                                  comm_.sequence(), comm_.name()));
    }
  }
  int64_t offset = 0;
  for (size_t from = 0; from < n; ++from) {
    const Post& theirs = post_of(static_cast<int>(from));
    int64_t begin = sum(std::span<const int64_t>(theirs.send_counts).first(self));
    copy(at(call_.recv, offset, call_.dtype), at(theirs.send, begin, call_.dtype), call_.recv_counts[from],
         call_.dtype);
    offset += call_.recv_counts[from];
  }
}

// The world was stopped: from now on nobody begins to use this rank's buffers; wait for those who have begun.
void ThreadCall::abandon() {
  for (Member& m : comm_.group->members)
    while (m.busy.load(std::memory_order_seq_cst)) std::this_thread::yield();
}

void ThreadBackend::progress() {
  for (size_t i = 0; i < started.size();) {
    ThreadCall* call = started[i];
    bool first = std::none_of(started.begin(), started.begin() + static_cast<ptrdiff_t>(i),
                              [&](ThreadCall* c) { return &c->communicator() == &call->communicator(); });
    if (first && call->everyone_posted())
      call->work();  // takes itself from the list
    else
      ++i;
  }
}

}  // namespace cleave::dist::detail
