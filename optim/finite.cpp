#include <cleave/core/tensor_impl.h>
#include <cleave/optim/finite.h>
#include <cleave/optim/internal/gradients.h>

#include <cmath>

namespace cleave::optim::detail {

bool all_finite(const std::vector<Tensor>& leaves) {
  Scopes scopes;
  double bad = 0;
  Device device = Device::Cpu;
  for (const Tensor& g : gradients(leaves)) {
    if (g.impl()->absent) continue;
    device = g.device();
    if (!std::isfinite(reduced(cpu::Reduce::max_abs, g.local()))) bad = 1;
  }
  // By the leaves, not by the gradients, that all ranks take the same communicator.
  if (dist::Communicator* ranks = common_ranks(leaves))
    ranks->all_reduce(&bad, 1, DType::f64, dist::ReduceOp::max, device, "all_finite");
  return bad == 0;
}

}  // namespace cleave::optim::detail
