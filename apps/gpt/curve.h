// A curve drawn with characters.
#pragma once
#include <string>
#include <vector>

namespace gpt {

/// `values` from left to right, a column per equal share of them (its mean), the largest and smallest numbers at the
/// left margin. Values that are not finite are left out; empty if there are fewer than two.
std::string draw_curve(const std::vector<double>& values, int width = 64, int height = 12);

}  // namespace gpt
