// ZeRO: plans whose optimizer state, gradients and parameters are split over data axes too.
#pragma once
#include <cleave/dist/mesh.h>
#include <cleave/nn/plan.h>

namespace cleave::nn {

/// The plan with ZeRO of a stage over mesh axes, on which its batch should be split and which split no parameter yet. A
/// parameter that the plan stores as L (without "=>") is split further: Z is L with the axes appended to one dim, the
/// first that they divide evenly, or the largest. Per step, of Psi bytes of parameters over n ranks of the axes:
///
///   stage  stored => used => gradient => state   sent by a rank
///   0      L => L => L => L                      2 Psi (n-1)/n  all-reduce of gradients
///   1      L => L => L => Z                      2 Psi (n-1)/n  reduce-scatter; all-gather of updated parameters
///   2      L => L => Z => Z                      the same; gradients go in backward, as soon as a parameter has its last
///   3      Z => L => Z => Z                      3 Psi (n-1)/n  all-gather in forward and in backward; reduce-scatter
///
/// FSDP is stage 3. HSDP is stage 3 over one of two data axes: gradients are reduce-scattered over it (s ranks), and the
/// parts all-reduced over the other (r ranks), 3 Psi (s-1)/s + 2 Psi/s (r-1)/r in all. Micro-batches under
/// `backward({.sync = false})` keep whole terms in stages 0 to 2 and reduce once; what is gathered (stage 3) is gathered
/// and reduce-scattered for each, and all-reduced over the other axes once. To keep split gradients of stage 2 between
/// micro-batches, let each sync.
///
/// Scalars and buffers stay as the plan has them. With parameters of 16 bits, gradients in f32 and AdamW a rank holds
/// 2 + 4 + 12 bytes per parameter in stage 0 (2 + 2 + 12 if gradients are kept in 16 bits, see
/// nn/gradient_precision.h), of which stage k divides the last k by n.
///
/// Throws PlanError for another stage, or axes that are missing or named twice; `shard` for axes that the mesh lacks.
ShardingPlan zero(ShardingPlan plan, const Zero& options);

namespace detail {
/// The checks of `zero`, and that the mesh has the axes.
void check_zero(const Zero& zero, dist::DeviceMesh mesh);
}  // namespace detail

}  // namespace cleave::nn
