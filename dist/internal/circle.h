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

/// What is known of another rank's wait may be old: the rank may have been stopped since. A circle is one if each rank
/// of it has waited for so long, and each was then seen to wait still.
inline constexpr double kCircleSeconds = 1;

}  // namespace cleave::dist::detail
