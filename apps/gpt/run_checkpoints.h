// The checkpoints of a run: all that it needs to go on as if it had never ended, on any mesh.
#pragma once
#include <cleave/dist/launch.h>
#include <cleave/nn/checkpoint_series.h>

#include <optional>

#include "gpt/data.h"
#include "gpt/trainer.h"

namespace gpt {

/// Counters of a run that outlive its end.
struct RunCounters {
  int64_t step = 0;     ///< done
  int64_t skipped = 0;  ///< left out, because a number was not finite
  int64_t skipped_in_a_row = 0;
};

class RunCheckpoints {
 public:
  /// Throws FileError if options.safety.checkpoints cannot be written. Collective, as all here.
  explicit RunCheckpoints(const TrainOptions& options);

  /// Puts trainer, loader and counters where options.safety.resume says: a checkpoint, or with "auto" the newest
  /// complete one, if there is one. Prints on rank 0 which, and which ones it had to pass by. Nothing changes unless
  /// all of it fits: throws FileError, or ValueError for a checkpoint of another model, optimizer or text.
  void resume(Trainer& trainer, nn::TokenLoader& batches, RunCounters& counters) const;
  /// After a step: saves if one is due (`last`: in any case), and sees to the one under way.
  void after_step(Trainer& trainer, const nn::TokenLoader& batches, const RunCounters& counters, bool last);

 private:
  const TrainOptions& o_;
  std::optional<nn::CheckpointSeries> series_;
};

/// What names the newest checkpoint of a folder; "" if nothing does. For whom only wants to see whether it changed.
std::string newest_checkpoint(const std::string& folder);

}  // namespace gpt
