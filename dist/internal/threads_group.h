// A group of thread ranks: its memory, its messages, and its members as one of them knows them.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cleave/dist/internal/shared_call.h>
#include <cleave/dist/internal/threads_world.h>

namespace cleave::dist::detail {

/// Messages from one member to another, by number.
struct Mailbox {
  std::mutex mutex;
  std::map<uint64_t, std::vector<std::byte>> messages;
  std::atomic<uint64_t> sent{0};
};

class ThreadGroup {
 public:
  ThreadGroup(const std::vector<int>& world_ranks, const std::string& axis);
  Mailbox& mailbox(int from, int to) {
    std::lock_guard lock(mutex_);
    return mailboxes_[{from, to}];
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  static constexpr int64_t kSlot = 32768;
  static std::unique_ptr<std::byte[], Free> allocate(size_t members);
  static std::vector<std::byte*> parts(std::byte* memory, size_t members);
  std::unique_ptr<std::byte[], Free> memory_;

 public:
  SharedGroup shared;

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Mailbox> mailboxes_;
};

/// All memory is everyone's.
class ThreadPeers : public Peers {
 public:
  ThreadPeers(ThreadBackend& rank, const std::vector<int>& ranks) : rank_(rank), ranks_(ranks) {}

  bool locate(const void* data, int64_t, Address& address) override {
    address.offset = reinterpret_cast<uint64_t>(data);
    return true;
  }
  std::byte* address(int, const Address& address) override { return reinterpret_cast<std::byte*>(address.offset); }

  bool reads_remote() const override { return false; }
  void read_remote(int, uint64_t, int64_t, void*) override {}

  bool may_be_killed() const override { return false; }
  bool crowded() const override { return rank_.world->crowded; }
  int looks_every() const override { return 1; }
  std::chrono::microseconds longest_sleep() const override {
    return std::chrono::microseconds(rank_.started.empty() ? 10000 : 200);
  }
  void progress() override {
    if (!rank_.started.empty()) detail::progress(rank_.started);
  }
  bool ending() override { return rank_.world->ending(); }
  void give_up() override { rank_.world->give_up(rank_.rank); }
  bool has_left(int member) override { return rank_.world->has_left(ranks_[static_cast<size_t>(member)]); }
  void peer_left(int member, const std::string& place) override;
  void sleeps(Waiter& waiter) override;
  void slept(Waiter& waiter, double seconds) override;
  void woke(Waiter&) override { rank_.world->set_place(rank_.rank, rank_.background, ""); }

 private:
  ThreadBackend& rank_;
  const std::vector<int>& ranks_;
};

}  // namespace cleave::dist::detail
