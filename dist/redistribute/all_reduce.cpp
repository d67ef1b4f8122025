// all_reduce: P -> R, over all the axes in one collective, so that every rank gets the same bits.
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

Tensor all_reduce(const Tensor& x, const Step& step, const char* label) {
  Tensor out = make_block(x, step.after);
  cleave::detail::copy_view(x.device(), cleave::detail::elements(x), out.impl()->view);
  step.before->mesh->communicator(step.axes).all_reduce(out.impl()->view.data, out.impl()->view.numel(), x.dtype(),
                                                        step.before->op, x.device(), label);
  return out;
}

}  // namespace cleave::dist::steps
