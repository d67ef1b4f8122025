// The shared memory of the MPI ranks of one host, and these ranks as one of them knows them.
#pragma once
#include <memory>
#include <vector>

#include <cleave/dist/internal/shared_call.h>
#include <cleave/dist/mpi/host_memory.h>
#include <cleave/dist/mpi/process.h>

namespace cleave::dist::detail {

class MpiPeers : public Peers {
 public:
  MpiPeers(MpiProcess& process, const std::vector<int>& ranks, bool reads_remote)
      : process_(process), ranks_(ranks), reads_remote_(reads_remote) {}

  bool locate(const void* data, int64_t bytes, Address& address) override {
    return process_.memory->locate(data, bytes, address);
  }
  std::byte* address(int member, const Address& address) override;
  bool reads_remote() const override { return reads_remote_; }
  void read_remote(int member, uint64_t pointer, int64_t bytes, void* to) override;

  bool may_be_killed() const override { return true; }
  bool crowded() const override { return process_.crowded; }
  int looks_every() const override { return 8; }  // a look costs as much as several yields
  std::chrono::microseconds longest_sleep() const override {
    return std::chrono::microseconds(process_.started.empty() ? 1000 : 50);
  }
  void progress() override;
  bool ending() override { return process_.ending(); }
  void give_up() override;
  bool has_left(int member) override { return process_.has_returned(ranks_[static_cast<size_t>(member)]); }
  void peer_left(int member, const std::string& place) override {
    process_.miss(ranks_[static_cast<size_t>(member)], place);
  }
  void sleeps(Waiter&) override {}
  void slept(Waiter& waiter, double seconds) override;
  void woke(Waiter& waiter) override;

 private:
  MpiProcess& process_;
  const std::vector<int>& ranks_;
  bool reads_remote_;
};

/// One rank's end of a group that shares memory.
class Window {
 public:
  /// Collective over `ranks`, all on one host. Null on all of them if one cannot reach another's memory.
  static std::unique_ptr<Window> make(MpiProcess& process, const std::vector<int>& ranks, int me,
                                      const std::string& name, int tag);
  void run(const Collective& call, uint64_t sequence) { SharedCall(rank_, call, sequence, false).wait(); }

 private:
  Window(MpiProcess& process, const std::vector<int>& ranks, int me, const std::string& name,
         std::vector<Segment> segments, bool reads_remote);
  static constexpr int64_t kSlot = 65536;
  std::vector<Segment> segments_;
  SharedGroup group_;
  MpiPeers peers_;
  std::vector<SharedCall*> started_;  // none: started calls go by messages
  SharedRank rank_;
};

}  // namespace cleave::dist::detail
