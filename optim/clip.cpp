// Norms of gradients over all ranks: every element counted once.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/ambient.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>
#include <cleave/optim/clip.h>
#include <cleave/optim/internal/gradients.h>

#include <cmath>

namespace cleave::optim::detail {

namespace {

// sum |g|^p of this rank's block, or max |g| for p = infinity.
double block_term(const Tensor& block, double p) {
  if (p == 2) return reduced(cpu::Reduce::sum_square, block);
  if (p == 1) return reduced(cpu::Reduce::sum_abs, block);
  if (std::isinf(p)) return reduced(cpu::Reduce::max_abs, block);
  return reduced(cpu::Reduce::sum, pow(abs(block), p));
}

// A hook may have left a gradient partial; a norm is of the sum.
Tensor without_partial(const Tensor& g) {
  if (!g.is_distributed() || !g.impl()->layout->partial) return g;
  dist::LayoutData content = *g.impl()->layout;
  content.partial = 0;
  return dist::redistribute_data(g, content.mesh->intern(content), "grad_norm");
}

// Of the ranks that hold the same block, the first on each axis counts it.
bool counts_here(const Tensor& g) {
  const dist::LayoutData* layout = g.impl()->layout;
  if (!layout) return true;
  const dist::MeshState& mesh = *layout->mesh;
  return mesh.member() && mesh.is_first(mesh.all_axes() & ~layout->split());
}

// Gradients without elements are of a simulated run: the traffic counts, there is no number.
Device device_of(const std::vector<Tensor>& grads) {
  for (const Tensor& g : grads)
    if (!g.impl()->absent) return g.device();
  return Device::Cpu;
}

double total_norm(const std::vector<Tensor>& grads, double p) {
  if (!(p >= 1)) throw ValueError("[grad_norm] p is " + std::to_string(p) + "; it must be at least 1, or infinity");
  bool extremum = std::isinf(p);
  auto add = [&](double& total, double term) {
    total = !extremum ? total + term : term > total || std::isnan(term) ? term : total;
  };
  double split = 0, plain = 0;
  for (const Tensor& g : grads) {
    Tensor summed = without_partial(g);
    if (counts_here(summed)) add(g.is_distributed() ? split : plain, block_term(summed.local(), p));
  }
  if (dist::Communicator* ranks = common_ranks(grads)) {
    // A maximum loses NaN: it travels as a number of its own.
    double terms[2] = {std::isnan(split) && extremum ? 0.0 : split, std::isnan(split) ? 1.0 : 0.0};
    ranks->all_reduce(terms, extremum ? 2 : 1, DType::f64, extremum ? dist::ReduceOp::max : dist::ReduceOp::sum,
                      device_of(grads), "grad_norm");
    split = extremum && terms[1] > 0 ? std::nan("") : terms[0];
  }
  add(split, plain);
  return extremum || p == 1 ? split : p == 2 ? std::sqrt(split) : std::pow(split, 1 / p);
}

void require_bound(double max_norm) {
  if (!(max_norm >= 0))
    throw ValueError("[clip_grad_norm] max_norm is " + std::to_string(max_norm) + "; it must not be negative");
}

void clip_to(const std::vector<Tensor>& grads, double max_norm, double norm, double eps) {
  double factor = max_norm / (norm + eps);
  if (factor < 1 || std::isnan(factor))
    for (const Tensor& g : grads)
      if (!g.impl()->absent) mul_(g.local(), factor);
}

}  // namespace

double grad_norm(const std::vector<Tensor>& leaves, double p) {
  Scopes scopes;
  return total_norm(gradients(leaves), p);
}

double clip_grad_norm(const std::vector<Tensor>& leaves, double max_norm, double p, double eps) {
  Scopes scopes;
  require_bound(max_norm);
  std::vector<Tensor> grads = gradients(leaves);
  double norm = total_norm(grads, p);
  clip_to(grads, max_norm, norm, eps);
  return norm;
}

void clip_grads_with_norm(const std::vector<Tensor>& leaves, double max_norm, double norm, double eps) {
  Scopes scopes;
  require_bound(max_norm);
  clip_to(gradients(leaves), max_norm, norm, eps);
}

void clip_grad_value(const std::vector<Tensor>& leaves, double bound) {
  Scopes scopes;
  if (!(bound >= 0))
    throw ValueError("[clip_grad_value] the bound is " + std::to_string(bound) + "; it must not be negative");
  for (const Tensor& g : gradients(leaves)) {
    if (g.impl()->absent) continue;
    if (g.is_distributed() && g.impl()->layout->partial)
      throw LayoutError("[clip_grad_value] a gradient is partial, " + describe(g.type()) +
                        "; a hook must leave it summed");
    copy_(g.local(), clamp(g.local(), -bound, bound));
  }
}

}  // namespace cleave::optim::detail
