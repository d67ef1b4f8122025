#include <cleave/dist/internal/shared_staged.h>

#include <cleave/dist/internal/reduce.h>
#include <cleave/dist/internal/shared_moves.h>

#include <algorithm>

namespace cleave::dist::detail {
namespace {

bool by_destination(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
}

}  // namespace

// Whole cache lines of elements, so that members do not write into one line.
int64_t Staged::room(const SharedGroup& group, const Collective& call) {
  int64_t bytes = by_destination(call.kind) ? group.slot_bytes / group.size() : group.slot_bytes;
  return std::max<int64_t>(bytes / 64 * 64, 8) / size_of(call.dtype);
}

// At least 1: the step in which the call was posted.
int64_t Staged::chunks(uint64_t number) const {
  int64_t most = 1;
  auto take = [&most](std::span<const int64_t> counts) {
    for (int64_t n : counts) most = std::max(most, n);
  };
  if (call_.kind == CollectiveKind::all_reduce || call_.kind == CollectiveKind::broadcast) most = call_.count;
  if (call_.kind == CollectiveKind::all_gather) take(call_.recv_counts);
  if (call_.kind == CollectiveKind::reduce_scatter) take(call_.send_counts);
  if (call_.kind == CollectiveKind::all_to_all)
    for (int i = 0; i < rank_.group.size(); ++i) take(rank_.group.send_counts(i, number));
  return (most + room_ - 1) / room_;
}

bool Staged::first_is_staged(uint64_t number) const {
  for (int i = 0; i < rank_.group.size(); ++i) {
    const Post& post = rank_.group.post(i, number);
    if (!post.empty && post.home != Home::staged) return false;
  }
  return true;
}

void Staged::run(uint64_t number) {
  int64_t last = chunks(number) - 1;
  base_ = number;
  if (!first_is_staged(number)) {  // posted in several ways: begin anew
    base_ = number + 1;
    rank_.finish(number);
    post(0);
  }
  for (int64_t k = 0; k <= last; ++k) {
    if (k < last) post(k + 1);
    waiter_.all(Mark::posted, base_ + static_cast<uint64_t>(k));
    if (!in_two_phases()) {
      take(k);
      continue;
    }
    reduce_block(k);
    if (k > 0) take(k - 1);
    if (k == last) take(k);
  }
}

void Staged::post(int64_t k) {
  uint64_t number = rank_.claim(waiter_);
  stage(k, rank_.group.slot(rank_.me, number));
  rank_.publish(number);
}

void Staged::stage(int64_t k, std::byte* slot) const {
  DType t = call_.dtype;
  if (call_.kind == CollectiveKind::broadcast && call_.peer != rank_.me) return;
  if (!by_destination(call_.kind)) {
    int64_t n =
        call_.kind == CollectiveKind::all_gather ? call_.recv_counts[static_cast<size_t>(rank_.me)] : call_.count;
    return copy_elements(slot, at(call_.send, k * room_, t), part(n, k), t);
  }
  int64_t offset = 0;
  for (int r = 0; r < rank_.group.size(); ++r) {
    int64_t n = call_.send_counts[static_cast<size_t>(r)];
    if (r != rank_.me) copy_elements(at(slot, r * room_, t), at(call_.send, offset + k * room_, t), part(n, k), t);
    offset += n;
  }
}

void Staged::take(int64_t k) {
  switch (call_.kind) {
    case CollectiveKind::all_reduce:
      take_reduced(k);
      break;
    case CollectiveKind::reduce_scatter:
      take_scattered(k);
      break;
    case CollectiveKind::broadcast:
      if (rank_.me != call_.peer)
        copy_elements(at(call_.recv, k * room_, call_.dtype), slot(call_.peer, k), part(call_.count, k), call_.dtype);
      break;
    default:
      take_parts(k);
  }
  rank_.finish(base_ + static_cast<uint64_t>(k));
}

// Nobody else reads this member's block of this member's slot, so the sum may replace it.
void Staged::reduce_block(int64_t k) {
  Block block = balanced_block(part(call_.count, k), rank_.group.size(), rank_.me);
  rank_.inputs.clear();
  for (int i = 0; i < rank_.group.size(); ++i) rank_.inputs.push_back(slot(i, k));
  void* out = slot(rank_.me, k);
  reduce_elements(call_.dtype, call_.op, rank_.inputs, {&out, 1}, block.offset, block.offset + block.size);
  uint64_t number = base_ + static_cast<uint64_t>(k);
  rank_.self().reduced.store(number + 1, std::memory_order_seq_cst);
  rank_.group.wake(Mark::reduced, number);
}

void Staged::take_reduced(int64_t k) {
  DType t = call_.dtype;
  int64_t n = part(call_.count, k);
  void* out = at(call_.recv, k * room_, t);
  if (in_two_phases()) {
    waiter_.all(Mark::reduced, base_ + static_cast<uint64_t>(k));
    for (int i = 0; i < rank_.group.size(); ++i) {
      Block block = balanced_block(n, rank_.group.size(), i);
      copy_elements(at(out, block.offset, t), at(slot(i, k), block.offset, t), block.size, t);
    }
    return;
  }
  rank_.inputs.clear();
  for (int i = 0; i < rank_.group.size(); ++i) rank_.inputs.push_back(i == rank_.me ? out : slot(i, k));
  reduce_elements(t, call_.op, rank_.inputs, {&out, 1}, 0, n);
}

void Staged::take_parts(int64_t k) {
  DType t = call_.dtype;
  bool all_to_all = call_.kind == CollectiveKind::all_to_all;
  int64_t to = 0;
  for (int r = 0; r < rank_.group.size(); ++r) {
    int64_t n = call_.recv_counts[static_cast<size_t>(r)];
    if (r != rank_.me) {
      const std::byte* from = all_to_all ? at(slot(r, k), rank_.me * room_, t) : slot(r, k);
      copy_elements(at(call_.recv, to + k * room_, t), from, part(n, k), t);
    } else {
      int64_t from = all_to_all ? sum(call_.send_counts.first(static_cast<size_t>(r))) : 0;
      copy_elements(at(call_.recv, to + k * room_, t), at(call_.send, from + k * room_, t), part(n, k), t);
    }
    to += n;
  }
}

void Staged::take_scattered(int64_t k) {
  DType t = call_.dtype;
  auto mine = static_cast<size_t>(rank_.me);
  int64_t begin = sum(call_.send_counts.first(mine)), n = part(call_.send_counts[mine], k);
  rank_.inputs.clear();
  for (int i = 0; i < rank_.group.size(); ++i)
    rank_.inputs.push_back(i == rank_.me ? at(call_.send, begin + k * room_, t) : at(slot(i, k), rank_.me * room_, t));
  void* out = at(call_.recv, k * room_, t);
  if (n) reduce_elements(t, call_.op, rank_.inputs, {&out, 1}, 0, n);
}

}  // namespace cleave::dist::detail
