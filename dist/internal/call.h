// A collective as data: what members compare, and what messages say.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

/// What must be alike on all members of a call, less the counts. Plain bytes: it is also read from shared memory.
struct CallHeader {
  uint64_t sequence = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Device device = Device::Cpu;
  int peer = 0;
  int64_t count = 0;
  char label[48] = {};  // a copy, cut to fit: the caller's text may be gone when another rank reads it

  void assign(const Collective& call, uint64_t number);
};

/// `counts` is empty for all_to_all, whose counts differ by rank.
struct CallRecord : CallHeader {
  CallRecord() = default;
  CallRecord(const Collective& call, uint64_t number);
  std::vector<int64_t> counts;
};

/// The counts that must be alike: of all_gather and reduce_scatter; none of other calls.
std::span<const int64_t> compared_counts(const Collective& call);
uint64_t hash(const CallHeader& header, std::span<const int64_t> counts);
/// "all_gather 'embedding' of [4, 3] f32".
std::string describe(const CallRecord& record);
/// "all_gather 'embedding' on tp (call 12)".
std::string place(const CallRecord& record, const std::string& name);

/// The text of the CommError for ranks a and b, whose calls are described by the last two arguments.
std::string disagreement(uint64_t sequence, const std::string& name, int a, int b, const std::string& call_a,
                         const std::string& call_b);

int64_t sum(std::span<const int64_t> counts);
/// Bytes of the buffer that this rank hands in.
int64_t payload_bytes(const Collective& call, int rank);

}  // namespace cleave::dist::detail
