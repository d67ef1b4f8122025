// One run of gpt train: its steps, what is told of them, its checkpoints.
#pragma once
#include <cleave/dist/launch.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/data.h"
#include "gpt/log.h"
#include "gpt/run_checkpoints.h"
#include "gpt/trainer.h"
#include "gpt/watch.h"

namespace gpt {

class Session {
 public:
  /// Builds the model, opens the log, goes on from a checkpoint if asked to, and says on rank 0 what runs where.
  Session(cleave::dist::World& world, const TrainOptions& options, const Corpus& corpus, const Placement& placement);
  /// The steps that are left. An error names the step, what this rank was at, and (if another rank is missed) the
  /// collective.
  void steps();
  /// Saves the model and tells of the run.
  void end();

 private:
  bool first() const { return world_.rank() == 0; }
  StepRecord one(int64_t step);
  void take(int64_t step);
  std::string place(int64_t step) const;
  void judge(const Batch& batch, const StepResult& result, int64_t step);
  double evaluate();
  void save();
  int64_t last_step() const;
  void introduce(const Placement& placement) const;
  void tell() const;

  cleave::dist::World& world_;
  const TrainOptions& o_;
  const Corpus& corpus_;
  Watch watch_;
  Trainer trainer_;
  nn::TokenLoader batches_;
  RunCheckpoints checkpoints_;
  RunCounters counters_;
  const char* doing_ = "";  // this rank, in the current step; null: what the trainer does
  std::optional<LogFile> log_;
  Progress progress_;
  std::vector<double> losses_;
  double held_out_ = 0;
  int64_t held_out_windows_ = 0;
};

/// This number of every rank, in their order. Communicates.
std::vector<int64_t> gathered(cleave::dist::World& world, int64_t value);

}  // namespace gpt
