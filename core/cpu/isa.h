// The instruction-set level that kernels run at: chosen once per process, alike on all ranks.
#pragma once
#include <cstdint>
#include <string_view>

namespace cleave::cpu {

/// x86-64 levels in increasing order; `generic` is the only one where the loops are compiled once.
enum class Isa : uint8_t { generic, v2, v3, v4 };

/// What the processor and the environment variable CLEAVE_ISA (v2, v3 or v4; it can only lower) allow, further lowered
/// by `limit_isa`. Throws ValueError for another value of the variable.
Isa isa();
/// Lowers the level of this process, to the least one among the ranks, before work starts.
void limit_isa(Isa level);
/// "generic", "v2", "v3", "v4".
std::string_view to_string(Isa level);

}  // namespace cleave::cpu
