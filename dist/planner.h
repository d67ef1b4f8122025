// The planner: the cheapest chain of steps between two layouts of one mesh.
#pragma once
#include <optional>
#include <vector>

#include <cleave/core/type.h>
#include <cleave/dist/redistribution.h>

namespace cleave::dist {

/// What one step costs, before anyone decided to take it.
struct StepPrice {
  StepKind kind = StepKind::cut;
  AxisMask axes = 0;               ///< the axes that communicate, or that are cut or kept
  int64_t bytes = 0;               ///< handed to the communicator by the busiest rank
  int64_t link_bytes = 0;          ///< through the link of the busiest rank
  int64_t picoseconds = 0;         ///< whole numbers, so that sums do not depend on their order
  int from_dim = -1, to_dim = -1;  ///< the dim whose list gets shorter / longer, where it is a single one
};

/// Bytes of the largest block of a rank: the first, since blocks are balanced.
int64_t block_bytes(const Shape& global, DType dtype, const LayoutData& layout);

/// The price of going from one layout to another in a single step; nothing if no single step does it. `block`: bytes of
/// the largest block of `from`. The layouts need not be interned.
std::optional<StepPrice> price_step(const LayoutData& from, const LayoutData& to, int64_t block);
/// The price of an all-to-all among `ranks`, the busiest of which hands in `bytes`.
StepPrice price_exchange(int64_t ranks, int64_t bytes);

/// The shortest path by (time, bytes, number of steps, kinds) over the layouts in which every axis is where `from` has
/// it, where `to` has it, or replicated; axes that stay in place at the head of a dim's list take no part. Only layouts
/// and steps that hold at most twice the larger block of the two ends are considered. Such a path always exists.
/// A path through any layout "between" two others in this sense is never shorter than their own.
struct Path {
  std::vector<Step> steps;
  int64_t picoseconds = 0;
  int layouts_considered = 0;
};
Path shortest_path(const Shape& global, DType dtype, const LayoutData* from, const LayoutData* to);

}  // namespace cleave::dist
