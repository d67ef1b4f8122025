// reduce_scatter: P -> S(d), the axes appended to the lists of any dims.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>
#include <cleave/dist/redistribute/under_way.h>

namespace cleave::dist::steps {

Tensor reduce_scatter(const Tensor& x, const Step& step, const char* label, bool background) {
  const MeshState& mesh = *step.before->mesh;
  Pieces terms = pack(x, boxes_of(step, [&] {
                           StepBoxes made;
                           Box here = local_box(x.shape(), *step.before);
                           for (const auto& member : mesh.group(step.axes))
                             made.sent.push_back(relative(local_box(x.shape(), *step.after, member), here));
                           return made;
                         }).sent);

  Tensor out = make_block(x, step.after);
  Collective call{.kind = CollectiveKind::reduce_scatter,
                  .send = terms.data,
                  .recv = out.impl()->view.data,
                  .send_counts = terms.counts,
                  .dtype = x.dtype(),
                  .op = step.before->op,
                  .device = x.device(),
                  .label = label};
  if (background) {
    auto started = mesh.background(step.axes).start(call);
    put_under_way(std::move(started), out, {.source = x, .sent = std::move(terms)});
  } else {
    mesh.communicator(step.axes).call(call);
  }
  return out;
}

}  // namespace cleave::dist::steps
