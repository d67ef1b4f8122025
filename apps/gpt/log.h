// What a training run tells: a line of JSON per step for programs, lines or a progress bar for people.
#pragma once
#include <cleave/dist/communicator.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gpt/outlier.h"

namespace gpt {

/// One step, as rank 0 sees it.
struct StepRecord {
  int64_t step = 0;  ///< from 1
  double loss = 0;   ///< nats per byte
  double grad_norm = 0;
  double lr = 0;
  double ms = 0;
  double tokens_per_s = 0;
  std::vector<int64_t> peak_bytes = {};            ///< by rank, since the start
  std::vector<cleave::dist::CommCount> comm = {};  ///< of rank 0 in this step
  std::optional<double> held_out = std::nullopt;   ///< loss, where it was measured
  bool skipped = false;                            ///< the update was left out
  std::optional<double> loss_scale = std::nullopt;
  std::optional<double> loss_z = std::nullopt;  ///< see OutlierDetector
  std::optional<double> grad_norm_z = std::nullopt;
  std::vector<std::string> outliers = {};  ///< of "loss", "grad_norm": what stands out from the steps before
};

/// One line, without its end: an object of
///
///   step          from 1; each once, in order, also in a log of several runs that went on from another
///   loss, grad_norm (before clipping), lr, ms, tokens_per_s    numbers
///   peak_bytes    a number for each rank: the most that its allocator has handed out since the start
///   comm          of rank 0 in this step: objects of phase, axis, kind, bytes (as handed in) and count
///
/// and, where there is something to say: held_out (loss), skipped (true: the update was left out), loss_scale, z (loss
/// and grad_norm: see OutlierDetector), outlier (names out of these two). What is not finite is null.
std::string to_json(const StepRecord& record);
/// For people: "step 40/800  loss 2.8131  ...".
std::string to_text(const StepRecord& record, int64_t steps);

/// Throws FileError, naming the option, unless the file can be written; what is in it stays.
void require_file(const char* option, const std::string& path);

/// A file of JSON lines, each written out at once, with z-scores and outliers of losses and gradient norms; a norm that
/// only overflowed under a loss scale is none. A run that goes on judges its steps as one that was never interrupted.
class LogFile {
 public:
  /// An empty path writes nothing. A run that goes on behind step `done` keeps the lines of steps up to it that the
  /// file has, and no others; at no time is the file without them. Throws FileError if the file cannot be made.
  explicit LogFile(const std::string& path, int64_t done = 0);
  /// Throws FileError if the line cannot be written.
  void write(const StepRecord& record);

 private:
  void judge(StepRecord& record);

  std::string path_;
  std::ofstream file_;
  OutlierDetector loss_, grad_norm_;
};

/// Progress on stdout: on a terminal (where stderr is one too: mpirun makes stdout look like one) a bar that moves,
/// else a line now and then (at most about 20, and what was measured on held-out text).
class Progress {
 public:
  explicit Progress(int64_t steps);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const StepRecord& record);
  /// Leaves the bar's line.
  void finish();

 private:
  int64_t steps_;
  bool terminal_, open_ = false;
  std::chrono::steady_clock::time_point shown_ = {};
};

}  // namespace gpt
