// cut: R -> S(d), on any axes and dims at once. A view of the block; nothing moves.
#include <cleave/core/primitives.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

Tensor cut(const Tensor& x, const Step& step) {
  Box here = local_box(x.shape(), *step.before), kept = relative(local_box(x.shape(), *step.after), here);
  View view = cleave::detail::sub_view(x.impl()->view, kept.offset, kept.shape);
  return cleave::detail::make_view(x, view, x.shape(), step.after);
}

}  // namespace cleave::dist::steps
