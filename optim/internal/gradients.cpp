#include <cleave/autograd/sync.h>
#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/optim/internal/gradients.h>

#include <unordered_set>

namespace cleave::optim::detail {

namespace {
constexpr Kernel reduce_kernel{
    .cpu = [](const KernelCall& c) { cpu::reduce(c.attributes.as<cpu::Reduce>(), *c.in[0], *c.out[0]); },
    .cpu_scratch =
        [](const KernelCall& c) { return cpu::reduce_scratch(c.attributes.as<cpu::Reduce>(), *c.in[0], *c.out[0]); }};

}  // namespace

double reduced(cpu::Reduce kind, const Tensor& block) {
  Shape one(block.dim(), 1);
  Tensor out = cleave::detail::make_tensor(one, DType::f64, block.device());
  cleave::detail::fill_view(out.device(), out.impl()->view, 0.0);
  const View* in[] = {&cleave::detail::elements(block)};
  const View* to[] = {&out.impl()->view};
  launch(reduce_kernel, block.device(), "grad_norm", {in, to, kind});
  return block.device() == Device::Cpu ? *out.data<double>() : 0.0;
}

std::vector<Tensor> gradients(const std::vector<Tensor>& leaves) {
  cleave::sync_gradients(leaves);
  std::vector<Tensor> out;
  std::unordered_set<const void*> seen;
  for (const Tensor& leaf : leaves) {
    if (!seen.insert(leaf.impl()).second) continue;
    if (Tensor g = leaf.grad(); g.defined()) out.push_back(g);
  }
  return out;
}

dist::Communicator* common_ranks(const std::vector<Tensor>& tensors) {
  const dist::MeshState* mesh = nullptr;
  bool one = true;
  for (const Tensor& g : tensors) {
    if (!g.is_distributed()) continue;
    one = one && (!mesh || mesh == g.impl()->layout->mesh);
    mesh = g.impl()->layout->mesh;
  }
  if (!mesh) return nullptr;
  dist::World& world = mesh->world();
  bool whole = static_cast<int>(mesh->ranks().size()) == world.size();
  return one && whole ? &mesh->communicator(mesh->all_axes()) : &world.communicator();
}

}  // namespace cleave::optim::detail
