#include "gpt/outlier.h"

#include <algorithm>
#include <cmath>

namespace gpt {

namespace {
constexpr double kLeastDeviation = 1e-3;  // of the mean: a series that hardly moves has no outliers in its last digits
}

OutlierDetector::Verdict OutlierDetector::add(double value) {
  if (!std::isfinite(value)) return {.z = std::nullopt, .outlier = true};
  Verdict verdict;
  if (seen_ >= options_.settled) {
    double deviation = std::max(std::sqrt(variance_), kLeastDeviation * std::abs(mean_));
    verdict.z = deviation > 0 ? (value - mean_) / deviation : value == mean_ ? 0.0 : std::copysign(1e9, value - mean_);
    verdict.outlier = *verdict.z > options_.threshold;
    double reach = options_.threshold * deviation;
    value = std::clamp(value, mean_ - reach, mean_ + reach);
  }
  ++seen_;
  double weight = std::max(1.0 / static_cast<double>(seen_), 2.0 / (options_.span + 1));
  double difference = value - mean_;
  mean_ += weight * difference;
  variance_ = (1 - weight) * (variance_ + weight * difference * difference);
  return verdict;
}

}  // namespace gpt
