// Checkpoints of one run: a folder with `step-00000100/`, ... and a file `latest` that names the newest.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cleave/nn/checkpoint.h>

namespace cleave::nn {

namespace detail {
class FileLock;
}

struct SeriesOptions {
  int keep = 3;  ///< newest ones that are kept, at least 1; 0: all
  SaveOptions save{};
  double lock_seconds = 5;  ///< to wait for another run that writes to the folder: it may be ending
};

/// The writing side. Functions are collective, as those of checkpoint.h. One run at a time may write to a folder: it is
/// locked while the object lives (on file systems that have locks).
class CheckpointSeries {
 public:
  /// Makes the folder if need be, and puts in order what saves that died have left in it: where the file system cannot
  /// exchange two names, a checkpoint that was being replaced is found only behind this. Throws FileError for one that
  /// cannot be written or that another run writes to (after a few seconds, for one that is ending), ValueError for bad
  /// options.
  explicit CheckpointSeries(std::string root, const SeriesOptions& options = {});
  /// Gives up what is under way: `wait` for the last save.
  ~CheckpointSeries();

  /// Writes `step-<step>`, then names it in `latest`, then removes what is older than the newest `keep` and what saves
  /// that died have left. A crash at any moment leaves the checkpoint before or this one, complete. A step that is
  /// there already is replaced. Waits for an asynchronous save first.
  void save(int64_t step, const CheckpointContent& content);
  /// The same behind the program's back: go on with `poll` once a step. Waits for the one before first.
  void save_async(int64_t step, const CheckpointContent& content);
  /// For a run that goes on behind `step`: later checkpoints in the folder belong to a course that was left, or cannot
  /// be loaded. They are renamed, "step-00000200.abandoned", so that no search takes them and none of this run is
  /// removed in their favour; `latest` names `step` again, if it is here. Returns their names.
  std::vector<std::string> abandon_after(int64_t step);

  /// Whether nothing is under way (any more); see CheckpointSave::poll. Does not communicate if there was nothing.
  bool poll();
  /// Whether a save is under way, without asking the other ranks.
  bool saving() const { return pending_.has_value(); }
  /// For what is under way, if anything is.
  void wait();
  /// The step of the newest one saved by this object; -1: none.
  int64_t saved() const { return saved_; }

 private:
  void begin(int64_t step, const CheckpointContent& content, bool background);
  bool complete(const std::function<bool()>& go_on);
  void finish();
  detail::FileOperations& files() const;
  std::string root_;
  SeriesOptions options_;
  std::unique_ptr<detail::FileLock> lock_;  // rank 0's
  std::optional<CheckpointSave> pending_;
  int64_t pending_step_ = -1, saved_ = -1;
};

/// What a search has found.
struct FoundCheckpoint {
  std::string folder{};  ///< "": none
  int64_t step = -1;
  std::vector<std::string> skipped{};  ///< newer ones that are incomplete or damaged: "step-00000200: why"
};

/// The newest complete checkpoint: the one that `latest` names, else (the file is missing or broken, or what it names
/// is) the one of the highest step that can be opened. With `verify` every byte is read and hashed first, each rank a
/// part. Nothing found is no error. Collective.
FoundCheckpoint find_latest(const std::string& root, bool verify = false);
/// "step-00000100".
std::string step_folder(int64_t step);

}  // namespace cleave::nn
