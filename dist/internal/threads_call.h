// One collective of one thread rank, from its post to its end.
#pragma once
#include <exception>

#include <cleave/dist/internal/threads_group.h>

namespace cleave::dist::detail {

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadBackend& backend, std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(rank, group->size(), group->name), backend(backend), group(std::move(group)) {}

  uint64_t next_number() { return numbers_++; }
  uint64_t sequence() const { return Communicator::sequence(); }
  Member& self() { return group->member(rank()); }

  ThreadBackend& backend;
  const std::shared_ptr<ThreadGroup> group;
  uint64_t free_until = kRing;      ///< calls below it find their place in the ring free
  std::vector<const void*> inputs;  ///< scratch of reductions
  std::vector<void*> outputs;

 private:
  void run(const Collective& call) override;
  std::unique_ptr<Pending> begin(const Collective& call) override;
  void send_bytes(const void* data, int64_t bytes, int to) override;
  void receive_bytes(void* data, int64_t bytes, int from) override;
  uint64_t expect(int from) { return ++expected_[from]; }
  void take(void* data, int64_t bytes, int from, uint64_t number);
  friend class PendingReceive;

  uint64_t numbers_ = 0;
  std::map<int, uint64_t> expected_;  // messages asked for, by sender
};

class ThreadCall : public Pending {
 public:
  /// Posts. `call` is checked; its buffers and counts stay alive until `wait` returned or threw.
  ThreadCall(ThreadCommunicator& communicator, const Collective& call, bool started);
  ~ThreadCall() override;
  void wait() override;

  const ThreadCommunicator& communicator() const { return comm_; }
  bool everyone_posted() const;
  /// This rank's part, once everyone has posted. Errors in what was handed in are kept for `wait`.
  void work();

 private:
  void post();
  void compare();
  void move();
  void reduce_everywhere(Member& me);
  void exchange(Member& me);
  void abandon();
  Post& post_of(int member) const { return comm_.group->member(member).post(number_); }

  ThreadCommunicator& comm_;
  Collective call_;
  uint64_t number_;
  Waiter waiter_;
  bool worked_ = false, over_ = false, all_copied_ = true;
  std::exception_ptr error_;
};

}  // namespace cleave::dist::detail
