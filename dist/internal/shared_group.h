// The shared memory of one group of ranks, threads of one process or processes of one host. Every step has a number;
// each member posts what it hands in under that number, waits until all have posted, does its part on the others'
// data, and counts the step as done. Nothing here holds a pointer: processes map the memory at different addresses.
#pragma once
#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <cleave/dist/internal/alarm.h>
#include <cleave/dist/internal/call.h>

namespace cleave::dist::detail {

inline constexpr uint64_t kRing = 4;  ///< steps of a member that may be under way

/// A place in memory that other members can reach. Where all have one address space, and for memory that the system
/// copies, `offset` is the pointer.
struct Address {
  int32_t segment = -1;  ///< processes: the owner's descriptor of the memory
  uint64_t offset = 0;
  uint64_t bytes = 0;  ///< of the segment
};

/// Where a member's payload is.
enum class Home : uint8_t {
  slot,    ///< copied into the slot, dense: one synchronisation is enough
  shared,  ///< in memory that all members reach, at `buffer`
  remote,  ///< in memory of its own, at `buffer`; the system copies it from there
  staged,  ///< in memory of its own: the slot has the first chunk of it
};

/// What a member hands in. The line that is waited for also says what the others need for the usual call.
struct alignas(64) Post {
  std::atomic<uint64_t> number{0};  ///< of the latest step posted here, plus one
  uint64_t hash = 0;                ///< of the whole header and its counts
  Address buffer;                   ///< all_reduce: written by the owner of each block
  Home home = Home::slot;
  bool empty = true;              ///< nothing is handed in
  alignas(64) CallHeader header;  ///< read only to say how calls differ
};

struct Member {
  alignas(64) std::atomic<uint64_t> done{0};     ///< number of steps whose part is done
  alignas(64) std::atomic<uint64_t> reduced{0};  ///< staged all_reduce: steps whose block lies reduced in the slot
  alignas(64) std::atomic<bool> busy{false};     ///< uses others' buffers
  std::atomic<bool> gone{false};                 ///< nobody may begin to use its buffers
  Alarm alarm;                                   ///< the first member's is the group's
};

enum class Mark { posted, reduced, done };

/// One member's view of the group: where in its address space the others' parts lie.
class SharedGroup {
 public:
  /// Bytes of one member's part, and its construction in memory aligned to 64 bytes.
  static size_t bytes(int members, int64_t slot_bytes);
  static void construct(std::byte* part, int members, int64_t slot_bytes);

  SharedGroup(std::vector<int> world_ranks, std::string axis, int64_t slot_bytes, std::vector<std::byte*> parts)
      : ranks(std::move(world_ranks)), name(std::move(axis)), slot_bytes(slot_bytes), parts_(std::move(parts)) {}

  int size() const { return static_cast<int>(ranks.size()); }
  Member& member(int i) const { return *reinterpret_cast<Member*>(parts_[static_cast<size_t>(i)]); }
  Post& post(int i, uint64_t number) const { return *reinterpret_cast<Post*>(ring(i, number)); }
  /// all_to_all, and in `recv_counts` also those of all_gather and reduce_scatter: by member.
  std::span<int64_t> send_counts(int i, uint64_t number) const { return {counts(i, number), ranks.size()}; }
  std::span<int64_t> recv_counts(int i, uint64_t number) const {
    return {counts(i, number) + ranks.size(), ranks.size()};
  }
  std::byte* slot(int i, uint64_t number) const { return ring(i, number) + slot_offset(size()); }
  Alarm& alarm() const { return member(0).alarm; }

  bool reached(int i, Mark mark, uint64_t number, std::memory_order order) const {
    switch (mark) {
      case Mark::posted:
        return post(i, number).number.load(order) > number;
      case Mark::reduced:
        return member(i).reduced.load(order) > number;
      default:
        return member(i).done.load(order) > number;
    }
  }

  /// After this member has set its mark for step `number`: wakes those who sleep until all have. Others' waits end with
  /// the last member's mark only, so an earlier one wakes nobody.
  void wake(Mark mark, uint64_t number) const {
    if (!alarm().has_sleepers()) return;
    for (int i = 0; i < size(); ++i)
      if (!reached(i, mark, number, std::memory_order_seq_cst)) return;
    alarm().wake();
  }

  const std::vector<int> ranks;
  const std::string name;
  const int64_t slot_bytes;

 private:
  static constexpr size_t line(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static size_t slot_offset(int members) { return sizeof(Post) + line(2 * 8 * static_cast<size_t>(members)); }
  static size_t stride(int members, int64_t slot_bytes) {
    return slot_offset(members) + line(static_cast<size_t>(slot_bytes));
  }
  std::byte* ring(int i, uint64_t number) const {
    return parts_[static_cast<size_t>(i)] + sizeof(Member) + number % kRing * stride(size(), slot_bytes);
  }
  int64_t* counts(int i, uint64_t number) const { return reinterpret_cast<int64_t*>(ring(i, number) + sizeof(Post)); }

  std::vector<std::byte*> parts_;
};

}  // namespace cleave::dist::detail
