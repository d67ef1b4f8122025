// One collective of one member of a group that shares memory, from its post to its end.
#pragma once
#include <exception>
#include <vector>

#include <cleave/dist/internal/waiter.h>

namespace cleave::dist::detail {

/// One member's end of a shared group: the number of its next step, and its calls under way.
class SharedRank {
 public:
  SharedRank(SharedGroup& group, int me, Peers& peers, std::vector<SharedCall*>& started)
      : group(group), me(me), peers(peers), started(started) {}

  Member& self() const { return group.member(me); }
  /// The number of the next step, once its place in the ring is free.
  uint64_t claim(Waiter& waiter) {
    uint64_t number = numbers_++;
    if (number >= free_until_) find_free(number, waiter);
    return number;
  }
  /// Makes this member's post of that step visible.
  void publish(uint64_t number) {
    group.post(me, number).number.store(number + 1, std::memory_order_seq_cst);
    group.wake(Mark::posted, number);
  }
  void finish(uint64_t number) {
    self().done.store(number + 1, std::memory_order_seq_cst);
    group.wake(Mark::done, number);
  }
  /// The world ends: from now on nobody begins to use this rank's buffers; waits for those who have begun.
  void leave();

  SharedGroup& group;
  const int me;
  Peers& peers;
  std::vector<SharedCall*>& started;  ///< of all groups of this rank, in order of start; their part is not yet done
  std::vector<const void*> inputs;    ///< scratch of reductions
  std::vector<void*> outputs;

 private:
  void find_free(uint64_t number, Waiter& waiter);
  uint64_t numbers_ = 0;
  uint64_t free_until_ = kRing;  // steps below it find their place in the ring free
};

/// Does this rank's part of the started calls whose members have all arrived, so that waits may come in any order.
void progress(std::vector<SharedCall*>& started);

class SharedCall : public Pending {
 public:
  /// Posts. `call` is checked; its buffers and counts stay alive until `wait` returned or threw. A call that is
  /// started needs buffers that all members reach.
  SharedCall(SharedRank& rank, const Collective& call, uint64_t sequence, bool started);
  ~SharedCall() override;
  void wait() override;

 private:
  friend void progress(std::vector<SharedCall*>& started);
  void post();
  void choose_home(Post& mine);
  void copy_in(std::byte* slot, int64_t bytes) const;
  bool everyone_posted() const;
  void work();
  void compare() const;
  void compare_pairs() const;
  enum class Mode { slots, in_place, staged };
  Mode common_mode() const;
  void move();
  void gather();
  const void* payload_of(int member) const;
  Post& post_of(int member) const { return rank_.group.post(member, number_); }

  SharedRank& rank_;
  Collective call_;
  uint64_t sequence_, number_;
  Waiter waiter_;
  Mode mode_ = Mode::slots;
  bool worked_ = false, over_ = false;
  std::exception_ptr error_;
};

}  // namespace cleave::dist::detail
