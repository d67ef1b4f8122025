// all_gather: S(d) -> R, for axes at the ends of the lists of any dims.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>
#include <cleave/dist/redistribute/under_way.h>

namespace cleave::dist::steps {

Tensor all_gather(const Tensor& x, const Step& step, const char* label, bool background) {
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
  Collective call{.kind = CollectiveKind::all_gather,
                  .send = mine.data,
                  .recv = theirs.data,
                  .recv_counts = theirs.counts,
                  .dtype = x.dtype(),
                  .device = x.device(),
                  .label = label};
  if (background) {
    auto started = mesh.background(step.axes).start(call);
    put_under_way(std::move(started), out, {x, std::move(mine), std::move(theirs), boxes});
  } else {
    mesh.communicator(step.axes).call(call);
    unpack(theirs, out.impl()->view, boxes);
  }
  return out;
}

}  // namespace cleave::dist::steps
