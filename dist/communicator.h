// Collectives on raw buffers, for one group of ranks. Implementations: self, threads, mpi, simulated.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cleave/core/device.h>
#include <cleave/core/dtype.h>
#include <cleave/core/observer.h>
#include <cleave/dist/layout.h>

namespace cleave::dist {

enum class CollectiveKind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send_recv,
  barrier
};
std::string_view to_string(CollectiveKind kind);

/// One call. Buffers are dense; counts are elements. `label` is the op or redistribution that asked, for messages.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;                       ///< all_reduce, broadcast, send, recv: elements of the buffer
  std::span<const int64_t> send_counts{};  ///< all_to_all: by destination; reduce_scatter: of each rank's result
  std::span<const int64_t> recv_counts{};  ///< all_to_all and all_gather: by source
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int peer = 0;                 ///< root of a broadcast; the other side of send and recv
  Device device = Device::Cpu;  ///< Meta: counted, nothing moves
  const char* label = "";
};

class CollectiveSpan;

/// A collective under way.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns when the result is there. Throws what the blocking call would.
  virtual void wait() = 0;
};

/// The ranks of one group. Public calls are collective: every member makes the same ones in the same order. They check
/// (in checked mode), count, and hand over to the implementation. All throw PeerError if another member failed or
/// returned, CommError if (in checked mode) the members' calls disagree, on every member.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// data[i] = op over ranks of data[i], in place; every rank gets the same bits. The halves are summed in f32.
  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op = ReduceOp::sum, Device device = Device::Cpu,
                  const char* label = "all_reduce");
  /// recv = the ranks' blocks in rank order; counts by rank, zeros allowed.
  void all_gather(const void* send, void* recv, std::span<const int64_t> counts, DType dtype,
                  Device device = Device::Cpu, const char* label = "all_gather");
  /// recv = this rank's block of the reduced buffer; counts by rank.
  void reduce_scatter(const void* send, void* recv, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op = ReduceOp::sum, Device device = Device::Cpu, const char* label = "reduce_scatter");
  /// Blocks in rank order on both sides.
  void all_to_all(const void* send, std::span<const int64_t> send_counts, void* recv,
                  std::span<const int64_t> recv_counts, DType dtype, Device device = Device::Cpu,
                  const char* label = "all_to_all");
  void broadcast(void* data, int64_t count, DType dtype, int root = 0, Device device = Device::Cpu,
                 const char* label = "broadcast");
  /// Point to point: not collective, not compared; messages between two ranks keep their order. `send` may wait until
  /// the message is received. Throws CommError at the receiver if its size is another.
  void send(const void* data, int64_t count, DType dtype, int to, Device device = Device::Cpu);
  void recv(void* data, int64_t count, DType dtype, int from, Device device = Device::Cpu);
  void barrier();

  /// Any of the collectives or messages, waiting for it: in place where the named function is.
  void call(const Collective& call);
  /// The same without waiting; buffers and counts must stay alive until `wait()`. In place where the
  /// blocking call is; an all_reduce may have both buffers, a send_recv has one. Waits may come in any order. What the
  /// blocking call would throw comes from `start` or from `wait`.
  std::unique_ptr<Pending> start(const Collective& call);

  /// Memory that all members reach, aligned to 64 bytes, contents unspecified: collectives whose buffers on all members
  /// are such memory copy nothing (gradient buckets, parameters). Not collective. MPI ranks on one host: shared pages,
  /// which all communicators of these ranks know and which are used again when freed; elsewhere ordinary memory.
  virtual std::shared_ptr<void> shared_buffer(int64_t bytes);
  /// Whether such memory saves collectives copies that a rank's ordinary memory costs.
  virtual bool gains_by_shared_buffers() const { return false; }

  /// Axis names for messages and counters, e.g. "dp.tp".
  const std::string& name() const { return name_; }

 protected:
  Communicator(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}
  /// Collectives on valid arguments; all_reduce and broadcast are in place (`send` equals `recv`). In checked mode they
  /// compare the members' calls before any result is written. Meta: nothing moves.
  virtual void run(const Collective& call) = 0;
  virtual std::unique_ptr<Pending> begin(const Collective& call) = 0;
  virtual void send_bytes(const void* data, int64_t bytes, int to) = 0;
  virtual void receive_bytes(void* data, int64_t bytes, int from) = 0;
  /// Number of this communicator's collectives so far, with the current one.
  uint64_t sequence() const { return sequence_; }

 private:
  CollectiveSpan enter(const Collective& call);  // checks, counts, makes it in place
  int rank_, size_;
  std::string name_;
  uint64_t sequence_ = 0;
};

/// Bytes of one kind of traffic of this rank. `bytes`: the payloads this rank handed in (for all_gather the part it
/// gave, else the whole buffer).
struct CommCount {
  std::string phase;  ///< "forward", "backward", "optimizer"
  std::string axis;
  CollectiveKind kind = CollectiveKind::all_reduce;
  DType dtype = DType::f32;  ///< of the elements
  int64_t bytes = 0;
  int64_t count = 0;
  double seconds = 0;  ///< what the cost model gives, see cost_model.h
};
/// One collective, as recorded while `record_collectives(true)`.
struct CommEvent {
  const char* phase = "";
  std::string axis;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t bytes = 0;
  DType dtype = DType::f32;
  std::string label;
};

/// This rank's traffic since `reset_comm_counts()`, by phase (forward, which is also the phase outside any scope,
/// backward, optimizer, others), axis, kind and dtype. Groups of one rank, barriers and the receiving side of point to
/// point are not counted.
std::vector<CommCount> comm_counts();
void reset_comm_counts();
/// Also keep a list of single collectives, for tests and `explain`; switching it on empties the list.
void record_collectives(bool on);
std::vector<CommEvent> recorded_collectives();

/// The phase of this rank now.
const char* current_phase();

/// Names the phase that traffic is counted under, for a scope of this rank. The text must outlive the counts.
class PhaseScope {
 public:
  explicit PhaseScope(const char* phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const char* before_;
  NamedSpan span_;
};

}  // namespace cleave::dist
