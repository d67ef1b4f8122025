// Where the memory of a rank goes, and when it is most: by a run, or before one, by a dry run on Device::Meta, which
// takes and gives back what the run would, without computing anything.
//
// Tensors that forward makes for itself must be on the device of its inputs: `arange(n, {.device = ids.device()})`.
//
//   nn::MemoryRecorder memory(Device::Meta);
//   auto model = nn::build<Mlp>({.device = Device::Meta, .deferred = true});
//   nn::shard(model, mesh, plan);
//   optim::AdamW optimizer(model.parameters());
//   for (int step = 0; step < 2; ++step) {  // the optimizer's state exists from the second on
//     memory.step();
//     train_one_step(empty({64, 32}, {.device = Device::Meta}));
//   }
//   std::fputs(memory.stop().table().c_str(), stdout);
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <cleave/core/device.h>

namespace cleave::nn {

enum class MemoryKind : uint8_t {
  parameters,     ///< what there was before the first step: parameters, buffers
  gradients,      ///< what backward leaves behind, also between micro-batches
  optimizer,      ///< what the optimizer keeps: moments, f32 copies of 16-bit parameters
  saved,          ///< made in forward and still there when backward begins; also in a recomputation within backward
  communication,  ///< packed blocks, gradient buckets, parameters gathered for use
  checkpoint,     ///< copies that a checkpoint is written from behind the program's back; what is read from one
  working         ///< all else: values on their way, scratch memory of kernels
};
inline constexpr int kMemoryKinds = 7;
std::string_view to_string(MemoryKind kind);

/// Bytes of one rank.
struct MemoryRow {
  MemoryKind kind = MemoryKind::working;
  std::string name;     ///< of `saved` the path of the innermost module that made it; of others what it is
  int64_t at_peak = 0;  ///< when the rank held the most
  int64_t largest = 0;  ///< of this row at any time
};

struct MemoryPlan {
  /// Of `MemoryStats::peak`, from the start of the recording.
  int64_t peak = 0;
  std::string where;  ///< "backward, linear": the phase and the innermost span that reached the peak
  std::array<MemoryRow, kMemoryKinds> kinds;
  std::vector<MemoryRow> rows;  ///< parts of the kinds, the largest first

  const MemoryRow& of(MemoryKind kind) const { return kinds[static_cast<size_t>(kind)]; }
  /// A line for each kind and for each row (those of modules that differ in a number alone in one) that is not 0.00, in
  /// MiB.
  std::string table() const;
  /// One line.
  std::string summary() const;
};

/// Records what this rank takes and gives back on one device, from its making to `stop`. Takes about 40 bytes for each
/// block taken. To be used on the rank (thread) that made it.
class MemoryRecorder {
 public:
  /// Throws ValueError if this rank is being observed already.
  explicit MemoryRecorder(Device device = Device::Cpu);
  ~MemoryRecorder();
  MemoryRecorder(const MemoryRecorder&) = delete;
  MemoryRecorder& operator=(const MemoryRecorder&) = delete;

  /// A step begins. What is there at the first one counts as parameters.
  void step();
  /// Ends the recording.
  MemoryPlan stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cleave::nn
