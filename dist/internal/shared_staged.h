// Collectives on buffers that other members do not reach: they go through the slots in chunks, one step each, and a
// member copies its next chunk in before it waits for the others' last one.
#pragma once
#include <algorithm>

#include <cleave/dist/internal/shared_call.h>

namespace cleave::dist::detail {

class Staged {
 public:
  Staged(SharedRank& rank, const Collective& call, Waiter& waiter)
      : rank_(rank), call_(call), waiter_(waiter), room_(room(rank.group, call)) {}

  /// Copies this member's chunk k into its slot. Chunk 0 may be posted with the call.
  void stage(int64_t k, std::byte* slot) const;
  /// The call whose posts are those of step `number`; finishes that step too.
  void run(uint64_t number);

 private:
  static int64_t room(const SharedGroup& group, const Collective& call);
  int64_t chunks(uint64_t number) const;
  bool first_is_staged(uint64_t number) const;
  /// Three or more members share the work of a sum: each sums its block in its slot, then all copy all blocks.
  bool in_two_phases() const { return call_.kind == CollectiveKind::all_reduce && rank_.group.size() > 2; }
  void post(int64_t k);
  void reduce_block(int64_t k);
  void take(int64_t k);
  void take_reduced(int64_t k);
  void take_parts(int64_t k);
  void take_scattered(int64_t k);
  std::byte* slot(int member, int64_t k) const { return rank_.group.slot(member, base_ + static_cast<uint64_t>(k)); }
  /// The part of `count` elements that is in chunk k.
  int64_t part(int64_t count, int64_t k) const { return std::clamp(count - k * room_, int64_t{0}, room_); }

  SharedRank& rank_;
  const Collective& call_;
  Waiter& waiter_;
  int64_t room_;       // elements of a chunk; of each destination's part of it, where there are destinations
  uint64_t base_ = 0;  // the step of chunk 0
};

}  // namespace cleave::dist::detail
