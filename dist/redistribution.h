// Redistribution: plans from one layout to another, found once per (shape, dtype, layouts), and their execution.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::dist {

enum class StepKind : uint8_t {
  cut,             ///< R -> S: keep the own block; no communication
  all_gather,      ///< S -> R
  all_to_all,      ///< S(i) -> S(j)
  reduce_scatter,  ///< P -> S
  all_reduce,      ///< P -> R
  keep_on_first,   ///< R -> P: the first rank keeps the value, the others hold zeros; no communication
  box_exchange     ///< blocks to blocks of any layout without partial axes (or with the same ones): uneven, re-ordered
                   ///< axes, other meshes
};
std::string_view to_string(StepKind kind);

/// What a step moves, as boxes within the old and the new block, by the rank they go to or come from.
struct StepBoxes {
  std::vector<Box> sent, received;
};

/// One collective or local cut.
struct Step {
  StepKind kind = StepKind::cut;
  AxisMask axes = 0;
  int from_dim = -1, to_dim = -1;  ///< the dims that are gathered / cut
  const LayoutData* before = nullptr;
  const LayoutData* after = nullptr;
  int64_t bytes = 0;  ///< handed in by the busiest rank, as communicators count them
  int64_t link_bytes =
      0;               ///< through its link: 2 B (n-1)/n for an all-reduce of B bytes among n, half of it for others
  double seconds = 0;  ///< under the alpha-beta model
  int64_t peak_bytes = 0;                               ///< largest input + output block of a rank
  mutable std::shared_ptr<const StepBoxes> boxes = {};  ///< of this rank, kept from the first run
};

/// The steps from `from.layout` to `to`; empty if they are equal. A function of global metadata alone.
struct RedistributionPlan {
  TensorType from;
  const LayoutData* to = nullptr;
  std::vector<Step> steps{};
  int64_t bytes = 0, link_bytes = 0;
  double seconds = 0;
  int64_t peak_bytes = 0;
  std::string reason{};  ///< why these steps, in words
};
/// A line per step: kind, axes, layouts, bytes; then the total and the reason.
std::string to_string(const RedistributionPlan& plan);

/// The plan for a tensor of this type; computed without communication or data. `to` may be a pattern. Throws
/// LayoutError if `to` has another rank or (unless no axis is partial) another mesh.
RedistributionPlan explain(const TensorType& type, Layout to);

/// The cached plan; `to` is resolved.
const RedistributionPlan& plan_redistribution(const TensorType& type, const LayoutData* to);

/// Runs the plan on this rank's block: x (distributed) as a tensor of layout `to`; untaped. Communicates. The result
/// may share x's storage if no element had to move. `label` names who asked, for counters and messages.
Tensor redistribute_data(const Tensor& x, const LayoutData* to, const char* label);
/// The same; but while communication overlaps with computation, a plan that is one all-gather or reduce-scatter is only
/// started, and whoever wants the result's elements first waits for it.
Tensor start_redistribution(const Tensor& x, const LayoutData* to, const char* label);

}  // namespace cleave::dist
