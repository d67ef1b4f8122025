// This rank's traffic.
#pragma once
#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

/// Adds a collective of a group of `ranks` in which this rank hands in `bytes`; `whole` is the buffer that the cost
/// model prices.
void count_collective(const Collective& call, const std::string& axis, int ranks, int64_t bytes, int64_t whole);

/// That this rank enters it, for `last_collective`.
void note_collective(const Collective& call, const std::string& axis);

}  // namespace cleave::dist::detail
