#include <cleave/dist/internal/circle.h>

#include <algorithm>

#include <fmt/format.h>

namespace cleave::dist::detail {

std::vector<int> find_circle(int from, std::span<const int> waits_for) {
  std::vector<int> path;
  for (int r = from; r >= 0; r = waits_for[static_cast<size_t>(r)]) {
    if (auto at = std::find(path.begin(), path.end(), r); at != path.end()) {
      std::vector<int> circle(at, path.end());
      std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
      return circle;
    }
    path.push_back(r);
  }
  return {};
}

std::string circle_text(const std::vector<int>& circle, const std::function<std::string(int rank)>& place) {
  std::string text;
  for (size_t i = 0; i < circle.size(); ++i)
    text += fmt::format("{}rank {} waits in {} for rank {}", i ? ", " : "", circle[i], place(circle[i]),
                        circle[(i + 1) % circle.size()]);
  return text +
         ": these waits never end. every rank must make the same calls in the same order; look for one that only some "
         "ranks make, as under if (rank == 0)";
}

}  // namespace cleave::dist::detail
