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

/// The tensors of a checkpoint: of the model, the optimizer, and what else the trainer keeps.
std::vector<nn::CheckpointGroup> checkpoint_groups(Trainer& trainer);

class RunCheckpoints {
 public:
  /// Throws FileError if options.safety.checkpoints cannot be written, ValueError if it has checkpoints and the run is
  /// not to go on from any. Collective, as all here.
  explicit RunCheckpoints(const TrainOptions& options);

  /// Puts trainer, loader and counters where options.safety.resume says: a checkpoint, the newest of a folder of them
  /// that is whole, or with "auto" the newest of options.safety.checkpoints, if there is one. Prints on rank 0 which,
  /// and which ones it had to pass by. Nothing changes unless all of it fits: throws FileError, also if there are
  /// checkpoints but none can be loaded, or ValueError for a checkpoint of another model, dtype, optimizer or text.
  void resume(Trainer& trainer, nn::TokenLoader& batches, RunCounters& counters);
  /// After a step: saves if one is due (`last`: in any case), and sees to the one under way.
  void after_step(Trainer& trainer, const nn::TokenLoader& batches, const RunCounters& counters, bool last);
  /// Whether a save goes on in the background.
  bool saving() const { return series_ && series_->saving(); }

 private:
  std::string found() const;
  const TrainOptions& o_;
  std::optional<nn::CheckpointSeries> series_;
};

/// What names the newest checkpoint of a folder; "" if nothing does. For whom only wants to see whether it changed.
std::string newest_checkpoint(const std::string& folder);

}  // namespace gpt
