// The algorithm of shared memory, with members that do not reach each other's buffers: staged, or read by "the system".
#include "dist/collective_cases.h"

#include <cleave/dist/internal/shared_call.h>

#include <thread>

using namespace cleave;
using namespace cleave::test;
using namespace cleave::dist::detail;

namespace {

/// Threads that act as processes of one host.
class Strangers : public Peers {
 public:
  explicit Strangers(bool reads) : reads_(reads) {}
  bool locate(const void*, int64_t, Address&) override { return false; }
  std::byte* address(int, const Address&) override { return nullptr; }
  bool reads_remote() const override { return reads_; }
  void read_remote(int, uint64_t pointer, int64_t bytes, void* to) override {
    std::memcpy(to, reinterpret_cast<const void*>(pointer), static_cast<size_t>(bytes));
  }
  bool may_be_killed() const override { return false; }
  bool crowded() const override { return true; }
  int looks_every() const override { return 8; }
  std::chrono::microseconds longest_sleep() const override { return std::chrono::microseconds(1000); }
  void progress() override {}
  bool ending() override { return false; }
  void give_up() override { throw PeerError(0, "nobody fails here"); }
  bool has_left(int) override { return false; }
  void peer_left(int, const std::string& place) override { throw PeerError(0, place); }
  void sleeps(Waiter&) override {}
  void slept(Waiter&, double) override {}
  void woke(Waiter&) override {}

 private:
  bool reads_;
};

class StrangeCommunicator : public Communicator {
 public:
  StrangeCommunicator(SharedGroup& group, int me, bool reads)
      : Communicator(me, group.size(), group.name), peers_(reads), rank_(group, me, peers_, started_) {}

 private:
  void run(const Collective& call) override { SharedCall(rank_, call, sequence(), false).wait(); }
  std::unique_ptr<Pending> begin(const Collective&) override { return nullptr; }
  void send_bytes(const void*, int64_t, int) override {}
  void receive_bytes(void*, int64_t, int) override {}

  Strangers peers_;
  std::vector<SharedCall*> started_;
  SharedRank rank_;
};

void on_strangers(int n, int64_t slot_bytes, bool reads, const std::function<void(Communicator&)>& f) {
  CAPTURE(n);
  CAPTURE(slot_bytes);
  size_t bytes = SharedGroup::bytes(n, slot_bytes);
  std::vector<std::byte*> parts;
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) {
    ranks.push_back(10 + r);
    parts.push_back(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
    SharedGroup::construct(parts.back(), n, slot_bytes);
  }
  {
    SharedGroup group(ranks, "strangers", slot_bytes, parts);
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        StrangeCommunicator comm(group, r, reads);
        f(comm);
      });
    for (auto& t : threads) t.join();
  }
  for (std::byte* p : parts) ::operator delete (p, std::align_val_t{64});
}

}  // namespace

TEST_CASE("buffers that others do not reach are staged, in slots of any size") {
  for (int n : {2, 3, 5})
    for (int64_t slot : {64 * 5, 8192, 65536})
      on_strangers(n, slot, false, [](Communicator& c) {
        check_reductions(c, DType::f32, ReduceOp::sum, 5000);
        check_reductions(c, DType::bf16, ReduceOp::max, 601);
        check_reductions(c, DType::f64, ReduceOp::min, 1);
        check_moves(c, DType::i64, 601);
        check_moves(c, DType::u8, 40001);
        check_same_bits(c, 30001);
        c.barrier();
      });
}

TEST_CASE("buffers that others do not reach are read by the system") {
  for (int n : {2, 4}) on_strangers(n, 65536, true, [](Communicator& c) { check_sizes(c, Where::own); });
}

TEST_CASE("staged calls that differ throw on every member, and the next ones are right") {
  on_strangers(3, 8192, false, [](Communicator& c) {
    std::vector<float> x(20000, 1.0f);
    std::string text =
        message_of<CommError>([&] { c.all_reduce(x.data(), c.rank() == 1 ? 10000 : 20000, DType::f32); });
    CHECK(has(text, "rank 10 calls all_reduce of 20000 f32, sum; rank 11 calls all_reduce of 10000 f32, sum"));
    check_same_bits(c, 20000);
  });
}
