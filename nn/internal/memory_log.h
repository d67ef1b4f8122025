// What a rank took and gave back, in order, and what it was doing then.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <cleave/core/allocator.h>
#include <cleave/core/observer.h>
#include <cleave/nn/memory_plan.h>

namespace cleave::nn::detail {

/// Moments are counted: each block that is taken or given back is one.
class MemoryLog : public Observer, public AllocationObserver {
 public:
  struct Block {
    int64_t bytes;
    int64_t born, died = -1;           // moments; -1: still there
    int32_t phase;                     // number of the outermost phase then; -1: none
    int32_t phase_name, module, what;  // texts; -1: none
    MemoryUse use;
    bool gathered;  // a parameter in its use layout
    bool copied;    // for a checkpoint
  };

  explicit MemoryLog(Device device) : device_(device) {}
  void begin(const Span& span) override;
  void end(const Span& span) override;
  void allocated(uint64_t number, int64_t bytes, Device device, MemoryUse use) override;
  void released(uint64_t number) override;
  void step();

  MemoryPlan plan() const;

 private:
  struct Frame {
    const Span* span;
    int32_t module, what;
    bool gathered, copied;
  };
  int32_t text_of(std::string_view text);
  MemoryKind kind_of(const Block& block) const;
  std::string name_of(const Block& block, MemoryKind kind) const;
  std::string place_of(const Block& block) const;
  bool reaches_backward(const Block& block) const;

  const Device device_;
  std::vector<Block> blocks_;
  std::vector<std::pair<int32_t, bool>> moments_;  // block, and whether it was taken
  std::unordered_map<uint64_t, int32_t> there_;    // blocks by number
  std::vector<int64_t> node_begins_, phase_ends_;  // moments
  int64_t first_step_ = -1;
  std::vector<Frame> frames_;
  std::vector<const Span*> phases_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, int32_t> known_texts_;
};

}  // namespace cleave::nn::detail
