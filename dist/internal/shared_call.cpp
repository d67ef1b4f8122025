#include <cleave/dist/internal/shared_call.h>

#include <cleave/core/error.h>
#include <cleave/dist/internal/shared_moves.h>
#include <cleave/dist/internal/shared_staged.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

/// The use of others' buffers. Together with `leave` it sees to it that nobody uses what a failed rank has freed:
/// either this rank sees that one is gone, or the one that leaves sees that this rank is busy.
struct Busy {
  explicit Busy(SharedRank& rank) : member(rank.self()) {
    member.busy.store(true, std::memory_order_seq_cst);
    for (int i = 0; i < rank.group.size(); ++i) {
      if (!rank.group.member(i).gone.load(std::memory_order_seq_cst)) continue;
      member.busy.store(false, std::memory_order_release);
      while (!rank.peers.ending()) std::this_thread::yield();  // the notice of why it went is on its way
      rank.peers.give_up();
    }
  }
  ~Busy() { member.busy.store(false, std::memory_order_release); }
  Member& member;
};

bool hands_in(const Collective& call, int me) {
  return call.device == Device::Cpu && call.kind != CollectiveKind::barrier &&
         (call.kind != CollectiveKind::broadcast || call.peer == me);
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

/// Whether the system should copy from memory that others do not reach: once, but page by page. A sum needs all terms
/// at once, and a large broadcast streams better through slots that stay in the caches.
bool better_read(CollectiveKind kind, int64_t bytes) {
  constexpr int64_t kStreamed = int64_t{1} << 19;
  return !reduces(kind) && (kind != CollectiveKind::broadcast || bytes <= kStreamed);
}

/// Payloads up to this are copied into the slot. An all_reduce of slots is computed by every member, which costs more
/// the more there are; memory that others do not reach has to be copied anyway.
int64_t slot_limit(const SharedGroup& group, CollectiveKind kind, bool reachable, bool reads_remote) {
  int64_t small = std::min<int64_t>(8192, group.slot_bytes);
  if (kind == CollectiveKind::all_reduce) return reachable || group.size() > 2 ? small : group.slot_bytes;
  if (kind == CollectiveKind::reduce_scatter) return reachable ? small : group.slot_bytes;
  return reachable || reads_remote ? small : group.slot_bytes;
}

}  // namespace

// The record in the ring is the older step's until everyone is done with it.
void SharedRank::find_free(uint64_t number, Waiter& waiter) {
  waiter.all(Mark::done, number - kRing);
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < group.size(); ++i) least = std::min(least, group.member(i).done.load(std::memory_order_acquire));
  free_until_ = least + kRing;
}

void SharedRank::leave() {
  constexpr std::chrono::seconds kDead{1};  // a killed process stays busy for ever
  self().gone.store(true, std::memory_order_seq_cst);
  auto end = std::chrono::steady_clock::now() + kDead;
  auto waits = [&] { return !peers.may_be_killed() || std::chrono::steady_clock::now() < end; };
  for (int i = 0; i < group.size(); ++i)
    while (group.member(i).busy.load(std::memory_order_seq_cst) && waits()) std::this_thread::yield();
}

SharedCall::SharedCall(SharedRank& rank, const Collective& call, uint64_t sequence, bool started)
    : rank_(rank), call_(call), sequence_(sequence), waiter_(rank.peers, rank.group, call_, sequence) {
  number_ = rank_.claim(waiter_);
  post();
  if (started) rank_.started.push_back(this);
}

SharedCall::~SharedCall() {
  if (over_) return;
  try {
    wait();
  } catch (...) {  // the buffers are free to go, and a destructor has nobody to tell
  }
}

void SharedCall::post() {
  Post& mine = post_of(rank_.me);
  mine.header.assign(call_, sequence_);
  auto alike = compared_counts(call_);
  mine.hash = hash(mine.header, alike);
  std::copy(alike.begin(), alike.end(), rank_.group.recv_counts(rank_.me, number_).begin());
  if (call_.kind == CollectiveKind::all_to_all) {
    std::copy(call_.send_counts.begin(), call_.send_counts.end(), rank_.group.send_counts(rank_.me, number_).begin());
    std::copy(call_.recv_counts.begin(), call_.recv_counts.end(), rank_.group.recv_counts(rank_.me, number_).begin());
  }
  choose_home(mine);
  rank_.publish(number_);
}

void SharedCall::choose_home(Post& mine) {
  int64_t bytes = hands_in(call_, rank_.me) ? payload_bytes(call_, rank_.me) : 0;
  mine.empty = bytes == 0;
  mine.home = Home::slot;
  if (mine.empty) return;
  bool reachable = rank_.peers.locate(call_.send, bytes, mine.buffer);
  std::byte* slot = rank_.group.slot(rank_.me, number_);
  if (bytes <= slot_limit(rank_.group, call_.kind, reachable, rank_.peers.reads_remote())) {
    copy_in(slot, bytes);
  } else if (reachable) {
    mine.home = Home::shared;
  } else if (rank_.peers.reads_remote() && better_read(call_.kind, bytes)) {
    mine.home = Home::remote;
    mine.buffer.offset = reinterpret_cast<uint64_t>(call_.send);
  } else {
    mine.home = Home::staged;
    Staged(rank_, call_, waiter_).stage(0, slot);
  }
}

// Less this member's own block, which nobody else reads.
void SharedCall::copy_in(std::byte* slot, int64_t bytes) const {
  int64_t from = bytes, to = bytes;
  if (call_.kind == CollectiveKind::all_to_all || call_.kind == CollectiveKind::reduce_scatter) {
    auto me = static_cast<size_t>(rank_.me);
    from = sum(call_.send_counts.first(me)) * size_of(call_.dtype);
    to = from + call_.send_counts[me] * size_of(call_.dtype);
  }
  auto* data = static_cast<const std::byte*>(call_.send);
  std::memcpy(slot, data, static_cast<size_t>(from));
  std::memcpy(slot + to, data + to, static_cast<size_t>(bytes - to));
}

bool SharedCall::everyone_posted() const {
  for (int i = 0; i < rank_.group.size(); ++i)
    if (!rank_.group.reached(i, Mark::posted, number_, std::memory_order_acquire)) return false;
  return true;
}

void SharedCall::wait() {
  if (!over_) {
    over_ = true;
    auto& started = rank_.started;
    try {
      while (!worked_) {  // calls of one group are worked on in order
        auto first = std::find_if(started.begin(), started.end(), [this](auto* c) { return &c->rank_ == &rank_; });
        SharedCall* next = first == started.end() ? this : *first;
        next->waiter_.all(Mark::posted, next->number_);
        if (!next->worked_) next->work();
      }
      if (mode_ == Mode::in_place) waiter_.all(Mark::done, number_);
    } catch (...) {
      std::erase(started, this);
      rank_.leave();
      throw;
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void SharedCall::work() {
  std::erase(rank_.started, this);
  Mode mode = common_mode();
  std::optional<Busy> busy;
  if (mode == Mode::in_place) busy.emplace(rank_);
  try {
    compare();
    mode_ = mode;
    if (mode == Mode::staged)
      Staged(rank_, call_, waiter_).run(number_);
    else
      move();
  } catch (...) { error_ = std::current_exception(); }
  busy.reset();
  worked_ = true;
  if (mode_ != Mode::staged) rank_.finish(number_);
}

// It costs no synchronisation of its own, so it is done in every mode. All members see the same posts and so come to
// the same verdict.
void SharedCall::compare() const {
  SharedGroup& group = rank_.group;
  for (int i = 1; i < group.size(); ++i) {
    if (post_of(i).hash == post_of(0).hash) continue;
    auto text = [&](int member) {
      CallRecord record;
      static_cast<CallHeader&>(record) = post_of(member).header;
      auto counts = group.recv_counts(member, number_);
      if (record.kind == CollectiveKind::all_gather || record.kind == CollectiveKind::reduce_scatter)
        record.counts.assign(counts.begin(), counts.end());
      return describe(record);
    };
    throw CommError(
        disagreement(sequence_, group.name, group.ranks[0], group.ranks[static_cast<size_t>(i)], text(0), text(i)));
  }
  if (call_.kind == CollectiveKind::all_to_all) compare_pairs();
}

void SharedCall::compare_pairs() const {
  const SharedGroup& group = rank_.group;
  auto n = static_cast<size_t>(group.size());
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      int64_t sent = group.send_counts(static_cast<int>(from), number_)[to];
      int64_t expected = group.recv_counts(static_cast<int>(to), number_)[from];
      if (sent == expected) continue;
      throw CommError(fmt::format("[{}] rank {} sends {} elements to rank {}, which expects {} (call {} on {})",
                                  call_.label, group.ranks[from], sent, group.ranks[to], expected, sequence_,
                                  group.name));
    }
  }
}

// All members see the same posts. An all_reduce in place needs every buffer in shared memory.
SharedCall::Mode SharedCall::common_mode() const {
  bool slots = false, others = false;
  for (int i = 0; i < rank_.group.size(); ++i) {
    const Post& post = post_of(i);
    if (post.empty) continue;
    if (post.home == Home::staged) return Mode::staged;
    (post.home == Home::slot ? slots : others) = true;
  }
  if (!others) return Mode::slots;
  return slots && call_.kind == CollectiveKind::all_reduce ? Mode::staged : Mode::in_place;
}

/// Null: in memory that the system copies.
const void* SharedCall::payload_of(int member) const {
  const Post& post = post_of(member);
  if (member == rank_.me) return call_.send;
  if (post.empty || post.home == Home::slot) return rank_.group.slot(member, number_);
  return post.home == Home::shared ? rank_.peers.address(member, post.buffer) : nullptr;
}

void SharedCall::move() {
  if (call_.device != Device::Cpu || call_.kind == CollectiveKind::barrier) return;
  if (!reduces(call_.kind)) return gather();
  rank_.inputs.clear();
  for (int i = 0; i < rank_.group.size(); ++i) rank_.inputs.push_back(payload_of(i));
  reduce_payloads(call_, rank_.me, rank_.inputs, mode_ == Mode::in_place, rank_.outputs);
}

void SharedCall::gather() {
  auto take = [&](int member, int64_t begin, int64_t n, void* to) {
    const void* from = payload_of(member);
    int64_t bytes = size_of(call_.dtype);
    if (from || !n)
      copy_elements(to, at(from, begin, call_.dtype), n, call_.dtype);
    else
      rank_.peers.read_remote(member, post_of(member).buffer.offset + static_cast<uint64_t>(begin * bytes), n * bytes,
                              to);
  };
  if (call_.kind == CollectiveKind::broadcast) {
    if (rank_.me != call_.peer) take(call_.peer, 0, call_.count, call_.recv);
    return;
  }
  auto me = static_cast<size_t>(rank_.me);
  int64_t to = 0;
  for (int r = 0; r < rank_.group.size(); ++r) {
    bool all_to_all = call_.kind == CollectiveKind::all_to_all;
    int64_t begin = all_to_all ? sum(rank_.group.send_counts(r, number_).first(me)) : 0;
    int64_t n = call_.recv_counts[static_cast<size_t>(r)];
    take(r, begin, n, at(call_.recv, to, call_.dtype));
    to += n;
  }
}

void progress(std::vector<SharedCall*>& started) {
  for (size_t i = 0; i < started.size();) {
    SharedCall* call = started[i];
    bool first = std::none_of(started.begin(), started.begin() + static_cast<ptrdiff_t>(i),
                              [&](SharedCall* c) { return &c->rank_ == &call->rank_; });
    if (first && call->everyone_posted())
      call->work();  // takes itself from the list
    else
      ++i;
  }
}

}  // namespace cleave::dist::detail
