// The list of all ops of the library.
#pragma once
#include <span>

namespace cleave {

struct OpDef;

/// In a fixed order.
std::span<const OpDef* const> registered_ops();

}  // namespace cleave
