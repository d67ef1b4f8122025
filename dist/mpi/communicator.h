// Collectives of MPI ranks: through shared memory on one host, else made of messages. Reductions add in rank order, as
// those of thread ranks do, so that all ranks get the same bits for every dtype, and a wait can end when a rank fails.
#pragma once
#include <map>

#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/world_backend.h>
#include <cleave/dist/mpi/exchange.h>
#include <cleave/dist/mpi/process.h>
#include <cleave/dist/mpi/window.h>

namespace cleave::dist::detail {

class MpiCommunicator : public Communicator {
 public:
  /// `number` tells its messages from those of other communicators and is the same on all members. Without a window
  /// all of its calls are messages; with one, those that are started.
  MpiCommunicator(MpiProcess& process, std::vector<int> ranks, int rank, int number, const std::string& name,
                  std::unique_ptr<Window> window);
  std::shared_ptr<void> shared_buffer(int64_t bytes) override;
  bool gains_by_shared_buffers() const override { return window_ != nullptr; }

  /// Rounds of messages that a call may have.
  enum Round { first, second, compared, verdict };
  int tag(uint64_t call, Round round) const { return number_ * kTags + static_cast<int>(call % 16) * 4 + round; }
  int message_tag() const { return number_ * kTags + 64; }
  uint64_t sequence() const { return Communicator::sequence(); }
  int world_rank(int member) const { return ranks[static_cast<size_t>(member)]; }
  static int max_groups(int max_tag) { return max_tag / kTags; }
  /// Of the messages by which members agree on a number; below those of group 1.
  static constexpr int kSetupTag = 127;

  MpiProcess& process;
  const std::vector<int> ranks;

 private:
  static constexpr int kTags = 128;
  void run(const Collective& call) override;
  std::unique_ptr<Pending> begin(const Collective& call) override;
  void send_bytes(const void* data, int64_t bytes, int to) override;
  void receive_bytes(void* data, int64_t bytes, int from) override;
  /// Checked mode: throws CommError on every member if their calls differ.
  void compare(const Collective& call, uint64_t number);
  std::vector<std::string> exchange_texts(const CallRecord& record, const std::string& mine, uint64_t number);

  std::unique_ptr<Window> window_;
  int number_;
  uint64_t calls_ = 0;
};

/// A collective or message under way.
class MpiCall : public Pending, public Polled {
 public:
  MpiCall(MpiCommunicator& communicator, const Collective& call, uint64_t number, bool started);
  ~MpiCall() override;
  void wait() override;

  bool advance() override;
  std::vector<int> missing() override { return exchange_.missing(); }
  void abandon() override;
  std::string place() const override;

 private:
  void post_first();
  void finish_first();
  void post_second();
  void post_all_reduce();
  void post_broadcast();
  void post_all_to_all();
  void split_blocks();
  int64_t own_offset() const;
  void post_to_all(const void* mine, std::span<const int64_t> counts, void* all);
  void post_blocks();
  void reduce_blocks(void* out);
  std::byte* at(void* p, int64_t elements) const {
    return static_cast<std::byte*>(p) + elements * size_of(call_.dtype);
  }
  const std::byte* at(const void* p, int64_t elements) const { return at(const_cast<void*>(p), elements); }
  void send(int member, const void* data, int64_t elements);
  void receive(int member, void* data, int64_t elements);

  MpiCommunicator& comm_;
  Collective call_;
  uint64_t number_;
  uint64_t sequence_;
  MpiCommunicator::Round round_ = MpiCommunicator::first;
  bool two_rounds_ = false, over_ = false;
  std::vector<int64_t> blocks_;  // elements by member, of calls that split their buffer
  Scratch::Block staging_;
  Exchange exchange_;
};

}  // namespace cleave::dist::detail
