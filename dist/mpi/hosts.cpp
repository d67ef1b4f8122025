#include <cleave/dist/mpi/hosts.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace cleave::dist::detail {

std::vector<int> parse_hosts(std::string_view text, int ranks) {
  std::vector<int> hosts;
  const char *p = text.data(), *end = p + text.size();
  while (true) {
    int host = 0;
    auto [next, error] = std::from_chars(p, end, host);
    if (error != std::errc{} || (next != end && *next != ',')) break;
    hosts.push_back(host);
    p = next + 1;
    if (next == end) {
      if (hosts.size() == static_cast<size_t>(ranks)) return hosts;
      break;
    }
  }
  throw ValueError(fmt::format("[launch] CLEAVE_HOSTS must be {} numbers like 0,0,1,1, not '{}'", ranks, text));
}

bool on_one_host(std::span<const int> host_of, std::span<const int> ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int r) { return host_of[static_cast<size_t>(r)] == host_of[static_cast<size_t>(ranks[0])]; });
}

}  // namespace cleave::dist::detail
