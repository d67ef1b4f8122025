// reduce_scatter: P -> S(d), the axes appended to the lists of any dims.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

Tensor reduce_scatter(const Tensor& x, const Step& step, const char* label) {
  const MeshState& mesh = *step.before->mesh;
  Pieces terms = pack(x, boxes_of(step, [&] {
                           StepBoxes made;
                           Box here = local_box(x.shape(), *step.before);
                           for (const auto& member : mesh.group(step.axes))
                             made.sent.push_back(relative(local_box(x.shape(), *step.after, member), here));
                           return made;
                         }).sent);

  Tensor out = make_block(x, step.after);
  mesh.communicator(step.axes).reduce_scatter(terms.data, out.impl()->view.data, terms.counts, x.dtype(),
                                              step.before->op, x.device(), label);
  return out;
}

}  // namespace cleave::dist::steps
