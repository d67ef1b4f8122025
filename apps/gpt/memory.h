// What a training step takes of each rank's memory, found by a dry run of it on Device::Meta.
#pragma once
#include <cleave/dist/launch.h>
#include <cleave/nn/memory_plan.h>

#include <cstdint>
#include <string>

#include "gpt/options.h"

namespace gpt {

/// How a run writes its checkpoints.
enum class Saving : uint8_t {
  none,
  waited,  ///< by itself, between steps
  copied,  ///< from copies, which it waits for: behind its last step
  behind   ///< from copies, while steps are made
};

/// What of a run its options do not say.
struct MemoryCase {
  bool overlap = false;  ///< communication goes on while a rank computes
  Saving saving = Saving::none;
  bool resumed = false;  ///< it goes on from a checkpoint: what that holds is read beside what there is
};
/// The case of a run with these options.
MemoryCase memory_case(const TrainOptions& options, bool overlap);

/// The memory of rank `rank` of `ranks` in training with these options, from before the model is built until no further
/// step takes more: two steps, an evaluation, what going on from a checkpoint takes, a save, and a third step while
/// it is written. Runs the trainer itself, on Device::Meta in a simulated world: nothing is computed, nothing read, no
/// random number drawn. Throws what the trainer throws for a plan that does not fit, and OutOfMemoryError never.
cleave::nn::MemoryPlan planned_memory(const TrainOptions& options, int ranks, int rank = 0, const MemoryCase& = {});

/// The plans of the rank that peaks highest, and how low the others' peaks are.
struct MemoryRange {
  cleave::nn::MemoryPlan most;
  int rank = 0;              ///< of `most`
  int64_t least = 0;         ///< the lowest peak
  std::string text() const;  ///< "; 8 ranks peak at 1.2 MiB to 1.3 MiB", or nothing
  int ranks = 1;
};
/// Blocks shrink with the coordinates of a rank: the first has the largest, the last the smallest. What a checkpoint
/// copies is dealt out otherwise; the rank with the most of it is looked at too.
MemoryRange planned_range(const TrainOptions& options, int ranks, const MemoryCase& = {});

/// What `gpt plan --memory` prints: the table of the rank that peaks highest; with a limit also whether it fits, and if
/// not, which options would make it fit. Without a mesh: of one rank.
std::string memory_text(const TrainOptions& options, const MemoryCase& = {}, int64_t limit = 0);

/// A line on rank 0's stdout before training begins.
void print_memory_plan(const cleave::dist::World& world, const TrainOptions& options);

}  // namespace gpt
