// keep_on_first: R -> P. The rank with coordinate 0 on the axes keeps the value, the rest hold zeros: exact for every
// dtype. For max and min every rank keeps it: the extremum of equal terms is the term.
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

Tensor keep_on_first(const Tensor& x, const Step& step) {
  if (step.before->mesh->is_first(step.axes) || step.after->op != ReduceOp::sum) return relabel(x, step.after);
  Tensor out = make_block(x, step.after);
  cleave::detail::fill_view(x.device(), out.impl()->view, 0);
  return out;
}

}  // namespace cleave::dist::steps
