// all_gather: S(d) -> R, for axes at the ends of the lists of any dims.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

Tensor all_gather(const Tensor& x, const Step& step, const char* label) {
  const MeshState& mesh = *step.before->mesh;
  Tensor out = make_block(x, step.after);
  const std::vector<Box>& boxes =
      boxes_of(step, [&] {
        StepBoxes made;
        Box whole = local_box(x.shape(), *step.after);
        for (const auto& member : mesh.group(step.axes))
          made.received.push_back(relative(local_box(x.shape(), *step.before, member), whole));
        return made;
      }).received;

  Box all{Shape(x.dim(), 0), x.impl()->view.shape};
  Pieces mine = pack(x, {&all, 1});
  Pieces theirs = room(out, boxes);
  mesh.communicator(step.axes).all_gather(mine.data, theirs.data, theirs.counts, x.dtype(), x.device(), label);
  unpack(theirs, out, boxes);
  return out;
}

}  // namespace cleave::dist::steps
