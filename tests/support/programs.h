// Random programs under random layouts against one device: what single ops do not show, sums over consumers, memoised
// redistributions, and gradients that pass several ops as partial sums.
#pragma once
#include <cleave/dist/mesh.h>

#include "support/op_case.h"

namespace cleave::test {

/// Runs programs number `first` to `first + count - 1`; each is a function of its number. Outputs and the gradients of
/// all leaves, put together, must equal one device's; replicas must be bit-equal, collectives alike on all ranks.
void check_programs(uint64_t first, uint64_t count, const std::vector<dist::MeshAxis>& axes, Report& report);

}  // namespace cleave::test
