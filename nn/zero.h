// ZeRO (Rajbhandari et al. 2020), FSDP (Zhao et al. 2023) and hybrid sharding as a change of a plan's layouts.
#pragma once
#include <string>
#include <vector>

#include <cleave/nn/module_base.h>
#include <cleave/nn/plan.h>

namespace cleave::nn {

struct ZeroOptions {
  int stage = 3;                           ///< 1: optimizer state; 2: gradients too; 3: parameters too
  std::vector<std::string> axes = {"dp"};  ///< over which they are split, major first
  /// Stage 3: parameters of fewer elements are stored whole, as in stage 2: they cost two collectives a step, whatever
  /// their size, and hardly any memory (DeepSpeed's persistence threshold).
  int64_t whole_below = 0;
};

/// `plan` for `model` on `mesh` with its parameters' state (1), gradients (2) and storage (3) split further over axes
/// that hold equal data. With Psi bytes of parameters and n ranks on the axes, each rank sends in a step
///
///   stage  stored  used  gradient  state  bytes per rank
///     0      S      U       S        S     2 Psi (n-1)/n   an all-reduce
///     1      S      U       S        S'    2 Psi (n-1)/n   reduce-scatter at the sync, all-gather of what was updated
///     2      S      U       S'       S'    2 Psi (n-1)/n   the same, each bucket as soon as backward has it
///     3      S'     U       S'       S'    3 Psi (n-1)/n   gathered for forward and for backward, reduce-scattered
///
/// where S' is S with the axes behind those of one dim: the first that they divide evenly, else the one with the
/// largest blocks; a scalar stays as it is. Hybrid sharding (HSDP) is stage 3 over one of two axes that split the
/// batch. The result names parameters by groups (`blocks.*.mlp.up.weight`). Throws LayoutError for an axis that the
/// mesh lacks or that a parameter is stored over already, ValueError for another stage, and what `shard` throws for the
/// plan.
ShardingPlan zero(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan,
                  const ZeroOptions& options = {});

}  // namespace cleave::nn
