// The steps of a redistribution, one kind per file. Each takes this rank's block of a tensor whose layout is
// `step.before` and returns that of `step.after`; all ranks of the mesh call it. The blocks' places come from
// coordinates, so uneven and empty blocks, several axes at once and any order of axes are the same code.
#pragma once
#include <cleave/core/tensor.h>
#include <cleave/dist/redistribution.h>

namespace cleave::dist::steps {

Tensor cut(const Tensor& x, const Step& step);
/// `background`: the collective is only started; the result's storage carries it.
Tensor all_gather(const Tensor& x, const Step& step, const char* label, bool background = false);
Tensor all_to_all(const Tensor& x, const Step& step, const char* label);
Tensor reduce_scatter(const Tensor& x, const Step& step, const char* label, bool background = false);
Tensor all_reduce(const Tensor& x, const Step& step, const char* label);
Tensor keep_on_first(const Tensor& x, const Step& step);
Tensor box_exchange(const Tensor& x, const Step& step, const char* label);
/// Between two meshes; called by the ranks of either.
Tensor mesh_exchange(const Tensor& x, const LayoutData* to, const char* label);

}  // namespace cleave::dist::steps
