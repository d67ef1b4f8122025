// Names: matching patterns, and finding what the user may have meant.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cleave::nn::detail {

bool is_pattern(std::string_view text);
/// Whether the pattern covers the dotted name: `*` is any one segment, `**` any number of segments. The root's name,
/// "", has no segments.
bool matches(std::string_view pattern, std::string_view name);

/// By edit distance: "; the nearest are a, b, c", or "; there are none".
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace cleave::nn::detail
