// Ranks that wait for each other: a circle of waits never ends.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cleave::dist::detail {

/// The circle that `from` runs into along `waits_for` (by rank, the rank that it waits for; -1: it does not wait), its
/// least rank first; empty: there is none.
std::vector<int> find_circle(int from, std::span<const int> waits_for);
/// The message of the error that ends it; `place` tells where a rank waits.
std::string circle_text(const std::vector<int>& circle, const std::function<std::string(int rank)>& place);

/// For so long a circle must have stayed as it is: what is known of other ranks' waits may be a little old.
inline constexpr double kCircleSeconds = 1;

}  // namespace cleave::dist::detail
