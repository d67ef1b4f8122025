// The alpha-beta model of collectives: what planning, `explain` and the simulated communicator price alike.
#pragma once
#include <cstdint>

#include <cleave/dist/communicator.h>

namespace cleave::dist {

/// Constants of one interconnect. The defaults are round numbers for ranks of one host; only ratios matter to plans.
struct CostModel {
  double latency = 2e-6;            ///< seconds per round of messages
  double seconds_per_byte = 1e-10;  ///< of a link: 10 GB/s
};

namespace detail {
constexpr int rounds(int64_t ranks) {
  int n = 0;
  for (int64_t reach = 1; reach < ranks; reach *= 2) ++n;
  return n;
}
}  // namespace detail

/// Bytes that pass the link of the busiest of `ranks` in one collective. `bytes` is the whole buffer: of all_reduce,
/// broadcast and send_recv the buffer, of all_gather the result, of reduce_scatter the input, of all_to_all what the
/// busiest rank hands in (with its own block). 0 for one rank.
constexpr double collective_traffic(CollectiveKind kind, int64_t ranks, int64_t bytes) {
  if (ranks <= 1) return 0;
  double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks), whole = static_cast<double>(bytes);
  switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::broadcast:
      return 2 * others * whole;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return others * whole;
    case CollectiveKind::send_recv:
      return whole;
    case CollectiveKind::barrier:
      break;
  }
  return 0;
}

/// Seconds of such a collective. Every kind among as many ranks pays the same latency, so that plans depend on bytes
/// first; splitting a collective never gets cheaper, and more bytes never do.
constexpr double collective_seconds(CollectiveKind kind, int64_t ranks, int64_t bytes, const CostModel& model = {}) {
  if (ranks <= 1) return 0;
  double start = kind == CollectiveKind::send_recv ? model.latency : detail::rounds(ranks) * model.latency;
  return start + collective_traffic(kind, ranks, bytes) * model.seconds_per_byte;
}

}  // namespace cleave::dist
