// Which ranks share a host. Without mpi.h, so that tests can ask.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

/// "0,0,1,1": a number by world rank that stands for its host. Throws ValueError unless there are `ranks` numbers.
std::vector<int> parse_hosts(std::string_view text, int ranks);
/// Whether all of these world ranks are on one host: then they use shared memory, else messages.
bool on_one_host(std::span<const int> host_of, std::span<const int> ranks);

}  // namespace cleave::dist::detail
