#include <cleave/dist/mpi/round.h>

namespace cleave::dist::detail {

Round::Round(MpiProcess& process, std::span<const int> ranks, std::string place, int tag, const std::byte* out,
             std::byte* in, int64_t bytes)
    : place_(std::move(place)) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == process.rank) continue;
    auto offset = static_cast<ptrdiff_t>(i) * bytes;
    exchange_.receive(process.data, ranks[i], in + offset, bytes, tag);
    exchange_.send(process.data, ranks[i], out + offset, bytes, tag);
  }
}

}  // namespace cleave::dist::detail
