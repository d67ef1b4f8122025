#include "gpt/outlier.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpt {

namespace {
constexpr double kLeastDeviation = 1e-3;  // of the mean: a series that hardly moves has no outliers in its last digits
}

OutlierDetector::Verdict OutlierDetector::add(double value) {
  if (!std::isfinite(value)) return {.z = std::nullopt, .outlier = true};
  Verdict verdict;
  if (seen_ < options_.settled) {
    take(value);
    return verdict;
  }
  double deviation = std::max(std::sqrt(variance_), kLeastDeviation * std::abs(mean_));
  verdict.z = deviation > 0 ? (value - mean_) / deviation : value == mean_ ? 0.0 : std::copysign(1e9, value - mean_);
  verdict.outlier = *verdict.z > options_.threshold;
  double reach = options_.threshold * deviation;
  take(std::clamp(value, mean_ - reach, mean_ + reach));
  if (!verdict.outlier) {
    row_.clear();
    return verdict;
  }
  row_.push_back(value);
  if (static_cast<int64_t>(row_.size()) < options_.level) return verdict;
  seen_ = 0;
  mean_ = variance_ = 0;
  for (double v : std::exchange(row_, {})) take(v);
  return verdict;
}

void OutlierDetector::take(double value) {
  ++seen_;
  double weight = std::max(1.0 / static_cast<double>(seen_), 2.0 / (options_.span + 1));
  double difference = value - mean_;
  mean_ += weight * difference;
  variance_ = (1 - weight) * (variance_ + weight * difference * difference);
}

}  // namespace gpt
