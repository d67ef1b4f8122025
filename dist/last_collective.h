// What this rank was at when it missed another: for messages.
#pragma once
#include <string>

namespace cleave::dist {

/// The collective that this rank is in, or was in last: "all_reduce 'gradients' over dp"; "no collective" before the
/// first. Groups of one rank do not count.
std::string last_collective();

}  // namespace cleave::dist
