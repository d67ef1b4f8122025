#include "gpt/curve.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace gpt {

namespace {

// The mean of each of `width` equal shares (fewer if there are fewer values).
std::vector<double> columns(const std::vector<double>& values, size_t width) {
  size_t n = std::min(width, values.size());
  std::vector<double> out;
  for (size_t c = 0; c < n; ++c) {
    size_t begin = c * values.size() / n, end = (c + 1) * values.size() / n;
    double total = 0;
    for (size_t i = begin; i < end; ++i) total += values[i];
    out.push_back(total / static_cast<double>(end - begin));
  }
  return out;
}

}  // namespace

std::string draw_curve(const std::vector<double>& values, int width, int height) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (finite.size() < 2 || width < 2 || height < 2) return "";
  std::vector<double> points = columns(finite, static_cast<size_t>(width));
  auto [low, high] = std::minmax_element(points.begin(), points.end());
  double least = *low, span = *high - *low;
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(points.size(), ' '));
  for (size_t c = 0; c < points.size(); ++c) {
    double share = span > 0 ? (points[c] - least) / span : 0;
    auto up = static_cast<size_t>(std::lround(share * (height - 1)));
    rows[static_cast<size_t>(height) - 1 - up][c] = '*';
  }
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string margin = r == 0                 ? fmt::format("{:8.4f}", *high)
                         : r + 1 == rows.size() ? fmt::format("{:8.4f}", least)
                                                : std::string(8, ' ');
    out += fmt::format("{} |{}\n", margin, rows[r]);
  }
  return out + std::string(9, ' ') + "+" + std::string(points.size(), '-') + "\n";
}

}  // namespace gpt
