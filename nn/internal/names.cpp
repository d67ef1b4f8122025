#include <cleave/core/text.h>
#include <cleave/nn/internal/names.h>

#include <algorithm>

namespace cleave::nn::detail {

namespace {

std::vector<std::string_view> segments(std::string_view text) {
  std::vector<std::string_view> out;
  if (text.empty()) return out;
  while (true) {
    size_t dot = text.find('.');
    out.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    text.remove_prefix(dot + 1);
  }
}

using Segments = std::vector<std::string_view>;

bool matches_from(const Segments& pattern, size_t p, const Segments& name, size_t n) {
  if (p == pattern.size()) return n == name.size();
  if (pattern[p] == "**") {
    for (size_t next = n; next <= name.size(); ++next)
      if (matches_from(pattern, p + 1, name, next)) return true;
    return false;
  }
  if (n == name.size() || (pattern[p] != "*" && pattern[p] != name[n])) return false;
  return matches_from(pattern, p + 1, name, n + 1);
}

}  // namespace

bool is_pattern(std::string_view text) {
  for (std::string_view s : segments(text))
    if (s == "*" || s == "**") return true;
  return false;
}

bool matches(std::string_view pattern, std::string_view name) {
  return matches_from(segments(pattern), 0, segments(name), 0);
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& n : names) ranked.emplace_back(edit_distance(word, n), n);
  if (ranked.empty()) return "; there are none";
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = ranked.size() == 1 ? "; the only one is " : "; the nearest are ";
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i) out += (i ? ", " : "") + ranked[i].second;
  return out;
}

}  // namespace cleave::nn::detail
