// What gpt train --log wrote, read again.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace gpt {

inline constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// One line; numbers that it lacks, or that were not finite, are NaN.
struct RunStep {
  int64_t step = 0;
  double loss = kMissing, grad_norm = kMissing, lr = kMissing, ms = kMissing, tokens_per_s = kMissing;
  double held_out = kMissing, loss_scale = kMissing;
  double loss_z = kMissing, grad_norm_z = kMissing;
  bool loss_outlier = false, grad_norm_outlier = false, skipped = false;
  std::vector<double> peak_bytes = {};            ///< by rank
  std::map<std::string, double> comm_bytes = {};  ///< by axis
};

struct RunLog {
  std::string name;  ///< the file's
  std::vector<RunStep> steps;
};

/// A last line without an end that is no JSON (a run was killed, or is writing it) is left out. Throws FileError for a
/// file that cannot be read and for one without lines, ValueError with file and line number for
/// what is not a line of a log: no JSON object, no step, a step that does not come after the one before, a field of
/// another type.
RunLog read_run_log(const std::string& path);

}  // namespace gpt
