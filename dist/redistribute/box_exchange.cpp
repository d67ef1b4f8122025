// box_exchange: any split -> any split. Every rank sends each overlap of its block with another's new block once.
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/steps.h>

namespace cleave::dist::steps {

// The axes of the step all split the old layout, so that each element has one sender within the group.
Tensor box_exchange(const Tensor& x, const Step& step, const char* label) {
  const MeshState& mesh = *step.before->mesh;
  Box old_box = local_box(x.shape(), *step.before), new_box = local_box(x.shape(), *step.after);
  std::vector<Box> outgoing, incoming;
  for (const auto& member : mesh.group(step.axes)) {
    outgoing.push_back(relative(overlap(old_box, local_box(x.shape(), *step.after, member)), old_box));
    incoming.push_back(relative(overlap(new_box, local_box(x.shape(), *step.before, member)), new_box));
  }
  Tensor out = make_block(x, step.after);
  Pieces sent = pack(x, outgoing);
  Pieces received = room(out, incoming);
  mesh.communicator(step.axes).all_to_all(sent.data, sent.counts, received.data, received.counts, x.dtype(), x.device(),
                                          label);
  unpack(received, out, incoming);
  return out;
}

}  // namespace cleave::dist::steps
