#include <cleave/core/text.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace cleave {

std::string bytes_text(int64_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes > -1024 && bytes < 1024) return std::to_string(bytes) + " B";
  double n = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; std::abs(n) >= 1023.95 && unit < 4; ++unit) n /= 1024;  // what would be written as 1024.0
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", unit < 2 ? 1 : 2, n, units[unit]);
  return text;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace cleave
