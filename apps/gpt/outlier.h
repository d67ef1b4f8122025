// Steps whose numbers stand out from those before them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace gpt {

struct OutlierOptions {
  double span = 100;     ///< steps: the weight of a value falls to 1/e^2 in about so many
  double threshold = 5;  ///< standard deviations above the mean from which a value is an outlier
  int64_t settled = 20;  ///< values that must have been seen before any is judged
  int64_t level = 10;    ///< outliers in a row after which theirs is the new level: it is settled anew
};

/// Judges a series of numbers one by one against the exponentially weighted mean and variance of the values before: at
/// first, the plain ones of all (West 1979, with weight max(1/n, 2/(span+1))). A value farther than the threshold is
/// taken into them as if it stood at the threshold: one spike does not hide the next. After `level` outliers in a row
/// all begins anew, with these as the first values. A number that is not finite is an outlier without a z, and taken
/// into nothing. Falls are no outliers: losses do that.
class OutlierDetector {
 public:
  explicit OutlierDetector(const OutlierOptions& options = {}) : options_(options) {}

  struct Verdict {
    std::optional<double> z = std::nullopt;  ///< standard deviations above the mean; none before `settled` values
    bool outlier = false;                    ///< z > threshold, or the value is not finite
  };
  Verdict add(double value);

 private:
  void take(double value);
  OutlierOptions options_;
  int64_t seen_ = 0;
  double mean_ = 0, variance_ = 0;
  std::vector<double> row_;  // outliers in a row
};

}  // namespace gpt
