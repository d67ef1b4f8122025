#include <cleave/dist/mpi/communicator.h>

#include <cleave/dist/internal/reduce.h>

#include <algorithm>
#include <cstring>

namespace cleave::dist::detail {
namespace {

constexpr int64_t kSmall = 16384;  // bytes up to which whole buffers go to everyone, in one round

}  // namespace

MpiCall::MpiCall(MpiCommunicator& communicator, const Collective& call, uint64_t number, bool started)
    : comm_(communicator), call_(call), number_(number), sequence_(comm_.sequence()) {
  post_first();
  if (started) comm_.process.started.push_back(this);
}

MpiCall::~MpiCall() {
  if (!over_) {
    try {
      wait();
    } catch (...) {  // abandoned; a destructor has nobody to tell
    }
  }
  std::erase(comm_.process.started, this);
  comm_.process.scratch.give(std::move(staging_));
}

void MpiCall::wait() {
  if (!over_) comm_.process.wait(*this);
}

void MpiCall::abandon() {
  over_ = true;
  std::erase(comm_.process.started, this);
  exchange_.abandon();
  comm_.process.graveyard.push_back(std::move(staging_));
}

bool MpiCall::advance() {
  if (over_) return true;
  if (!exchange_.done()) return false;
  if (round_ == MpiCommunicator::first) {
    finish_first();
    if (two_rounds_) {
      round_ = MpiCommunicator::second;
      post_second();
      return false;
    }
  }
  over_ = true;
  return true;
}

std::string MpiCall::place() const {
  return detail::place({call_, call_.kind == CollectiveKind::send_recv ? 0 : sequence_}, comm_.name());
}

void MpiCall::send(int member, const void* data, int64_t elements) {
  int tag = call_.kind == CollectiveKind::send_recv ? comm_.message_tag() : comm_.tag(number_, round_);
  exchange_.send(comm_.process.data, comm_.world_rank(member), data, elements * size_of(call_.dtype), tag);
}
void MpiCall::receive(int member, void* data, int64_t elements) {
  int tag = call_.kind == CollectiveKind::send_recv ? comm_.message_tag() : comm_.tag(number_, round_);
  exchange_.receive(comm_.process.data, comm_.world_rank(member), data, elements * size_of(call_.dtype), tag);
}

/// Members' blocks to everyone, each into its place. Blocks of no elements are not sent.
void MpiCall::post_to_all(const void* mine, std::span<const int64_t> counts, void* all) {
  int64_t offset = 0, own = counts[static_cast<size_t>(comm_.rank())];
  for (int r = 0; r < comm_.size(); ++r) {
    int64_t n = counts[static_cast<size_t>(r)];
    if (r != comm_.rank() && n) receive(r, at(all, offset), n);
    if (r != comm_.rank() && own) send(r, mine, own);
    offset += n;
  }
}

/// Every member's terms of this rank's block, into staging in rank order; the others' blocks go to them.
void MpiCall::post_blocks() {
  int64_t offset = 0, own = blocks_[static_cast<size_t>(comm_.rank())];
  staging_ = comm_.process.scratch.take(static_cast<size_t>(comm_.size() * own * size_of(call_.dtype)));
  for (int r = 0; r < comm_.size(); ++r) {
    int64_t n = blocks_[static_cast<size_t>(r)];
    void* term = at(static_cast<void*>(staging_.data.get()), r * own);
    if (r == comm_.rank() && own)
      std::memcpy(term, at(call_.send, offset), static_cast<size_t>(own * size_of(call_.dtype)));
    if (r != comm_.rank() && own) receive(r, term, own);
    if (r != comm_.rank() && n) send(r, at(call_.send, offset), n);
    offset += n;
  }
}

void MpiCall::reduce_blocks(void* out) {
  int64_t own = blocks_[static_cast<size_t>(comm_.rank())];
  std::vector<const void*> in;
  for (int r = 0; r < comm_.size(); ++r) in.push_back(at(static_cast<void*>(staging_.data.get()), r * own));
  reduce_elements(call_.dtype, call_.op, in, {&out, 1}, 0, own);
}

void MpiCall::post_first() {
  switch (call_.kind) {
    case CollectiveKind::all_reduce:
      return post_all_reduce();
    case CollectiveKind::broadcast:
      return post_broadcast();
    case CollectiveKind::all_to_all:
      return post_all_to_all();
    case CollectiveKind::reduce_scatter:
      blocks_.assign(call_.send_counts.begin(), call_.send_counts.end());
      return post_blocks();
    case CollectiveKind::all_gather: {
      void* own = at(call_.recv, sum(call_.recv_counts.first(static_cast<size_t>(comm_.rank()))));
      post_to_all(call_.send, call_.recv_counts, call_.recv);
      if (int64_t bytes = payload_bytes(call_, comm_.rank()); bytes && own != call_.send)
        std::memmove(own, call_.send, static_cast<size_t>(bytes));
      return;
    }
    case CollectiveKind::send_recv:
      if (call_.send)
        send(call_.peer, call_.send, call_.count);
      else
        receive(call_.peer, call_.recv, call_.count);
      return;
    case CollectiveKind::barrier: {
      std::vector<int64_t> one(static_cast<size_t>(comm_.size()), 1);
      auto bytes = one.size() * static_cast<size_t>(size_of(call_.dtype));
      staging_ = comm_.process.scratch.take(bytes);  // the content does not matter, but it is sent
      std::memset(staging_.data.get(), 0, bytes);
      return post_to_all(at(static_cast<void*>(staging_.data.get()), comm_.rank()), one, staging_.data.get());
    }
  }
}

void MpiCall::split_blocks() {
  two_rounds_ = true;
  for (int64_t r = 0; r < comm_.size(); ++r) blocks_.push_back(balanced_block(call_.count, comm_.size(), r).size);
}

// Small: everyone gets everything and sums it itself. Large: everyone sums its block, then hands it to all.
void MpiCall::post_all_reduce() {
  int64_t bytes = payload_bytes(call_, comm_.rank());
  if (bytes > kSmall) {
    split_blocks();
    return post_blocks();
  }
  blocks_.assign(static_cast<size_t>(comm_.size()), call_.count);
  staging_ = comm_.process.scratch.take(blocks_.size() * static_cast<size_t>(bytes));
  void* all = staging_.data.get();
  if (bytes) std::memcpy(at(all, comm_.rank() * call_.count), call_.send, static_cast<size_t>(bytes));
  post_to_all(call_.send, blocks_, all);
}

// Small: the root sends to everyone. Large: each member gets a block, then hands it to all.
void MpiCall::post_broadcast() {
  int root = call_.peer, me = comm_.rank();
  if (payload_bytes(call_, me) <= kSmall || comm_.size() == 2) {
    if (!call_.count) return;
    if (me != root) return receive(root, call_.recv, call_.count);
    for (int r = 0; r < comm_.size(); ++r)
      if (r != root) send(r, call_.send, call_.count);
    return;
  }
  split_blocks();
  int64_t offset = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    int64_t n = blocks_[static_cast<size_t>(r)];
    if (me == root && r != root && n) send(r, at(call_.send, offset), n);
    if (me == r && r != root && n) receive(root, at(call_.recv, offset), n);
    offset += n;
  }
}

void MpiCall::post_all_to_all() {
  int64_t from = 0, to = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    int64_t sent = call_.send_counts[static_cast<size_t>(r)], got = call_.recv_counts[static_cast<size_t>(r)];
    if (r == comm_.rank()) {
      auto bytes = static_cast<size_t>(std::min(sent, got) * size_of(call_.dtype));
      if (bytes) std::memmove(at(call_.recv, to), at(call_.send, from), bytes);
    } else {
      if (got) receive(r, at(call_.recv, to), got);
      if (sent) send(r, at(call_.send, from), sent);
    }
    from += sent;
    to += got;
  }
}

int64_t MpiCall::own_offset() const {
  return sum(std::span<const int64_t>(blocks_).first(static_cast<size_t>(comm_.rank())));
}

void MpiCall::finish_first() {
  if (call_.kind == CollectiveKind::reduce_scatter) reduce_blocks(call_.recv);
  if (call_.kind == CollectiveKind::all_reduce) reduce_blocks(two_rounds_ ? at(call_.recv, own_offset()) : call_.recv);
}

void MpiCall::post_second() {
  if (call_.kind == CollectiveKind::all_reduce) return post_to_all(at(call_.recv, own_offset()), blocks_, call_.recv);
  int root = call_.peer, me = comm_.rank();
  int64_t offset = 0, own = blocks_[static_cast<size_t>(me)];
  for (int r = 0; r < comm_.size(); ++r) {
    int64_t n = blocks_[static_cast<size_t>(r)];
    if (me != root && r != me && n) receive(r, at(call_.recv, offset), n);
    if (r != root && r != me && own) send(r, at(call_.recv, own_offset()), own);
    offset += n;
  }
}

}  // namespace cleave::dist::detail
