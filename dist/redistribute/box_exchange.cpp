// box_exchange: any split -> any split. Every rank sends each overlap of its block with another's new block once.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

// The axes of the step all split the old layout, so that each element has one sender within the group.
Tensor box_exchange(const Tensor& x, const Step& step, const char* label) {
  const MeshState& mesh = *step.before->mesh;
  const StepBoxes& boxes = boxes_of(step, [&] {
    StepBoxes made;
    Box old_box = local_box(x.shape(), *step.before), new_box = local_box(x.shape(), *step.after);
    for (const auto& member : mesh.group(step.axes)) {
      made.sent.push_back(relative(overlap(old_box, local_box(x.shape(), *step.after, member)), old_box));
      made.received.push_back(relative(overlap(new_box, local_box(x.shape(), *step.before, member)), new_box));
    }
    return made;
  });
  Tensor out = make_block(x, step.after);
  Pieces sent = pack(x, boxes.sent);
  Pieces received = room(out, boxes.received);
  mesh.communicator(step.axes).all_to_all(sent.data, sent.counts, received.data, received.counts, x.dtype(), x.device(),
                                          label);
  unpack(received, out.impl()->view, boxes.received);
  return out;
}

}  // namespace cleave::dist::steps
