#include <cleave/core/primitives.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/view.h>
#include <cleave/optim/internal/adam_update.h>
#include <cleave/optim/internal/global_sums.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/internal/whole_matrices.h>
#include <cleave/optim/muon.h>

#include <algorithm>
#include <cmath>

namespace cleave::optim {

namespace {

void check_group(const Group<MuonOptions>& g) {
  const MuonOptions& o = g.options;
  detail::require_positive_or_zero("muon", "lr", o.lr);
  detail::require_fraction("muon", "momentum", o.momentum);
  detail::require_positive_or_zero("muon", "weight_decay", o.weight_decay);
  detail::require_positive_or_zero("muon", "eps", o.eps);
  detail::require(o.steps >= 1 && o.steps < 100, "muon", "steps", o.steps, "be from 1 to 99");
  if (o.rest) detail::check_adam("muon", *o.rest);
  for (const nn::Parameter& p : g.parameters)
    if (!o.rest && (!o.orthogonal || p.shape().rank() != 2))
      throw ShapeError("[muon] parameter " + p.name() + " is " + to_string(p.shape()) +
                       (o.orthogonal ? " and no matrix" : " in a group with `orthogonal` off") +
                       "; set `rest` to options of AdamW for such, or give them to an optimizer of their own");
}

double adjusted(const MuonOptions& o, const Shape& shape) {
  auto m = static_cast<double>(shape[0]), n = static_cast<double>(shape[1]);
  return o.scale == MuonScale::match_adamw ? 0.2 * std::sqrt(std::max(m, n)) : std::sqrt(std::max(1.0, m / n));
}

Tensor orthogonalized(const Tensor& u, const MuonOptions& o) {
  bool tall = u.shape()[0] > u.shape()[1];
  Tensor x = cleave::detail::dense_copy(tall ? transpose(u, 0, 1) : u, u.dtype());
  detail::GlobalSums sums;
  double norm = std::sqrt(detail::GlobalSums::value(sums.add(cpu::Reduce::sum_square, x, nullptr)));
  mul_(x, 1 / std::max(norm, o.eps));
  for (int k = 0; k < o.steps; ++k) {
    Tensor gram = matmul(x, transpose(x, 0, 1));
    x = x * o.a + matmul(gram * o.b + matmul(gram, gram) * o.c, x);
  }
  return tall ? transpose(x, 0, 1) : x;
}

}  // namespace

Muon::Muon(const std::vector<nn::Parameter>& p, const MuonOptions& o) : Muon({{p, o, {}}}) {}
Muon::Muon(const std::vector<Tensor>& tensors, const MuonOptions& o) : Muon(parameters_of(tensors), o) {}
Muon::Muon(std::vector<Group<MuonOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

void Muon::update(const Update& u) { update_all({&u, 1}); }

void Muon::update_all(std::span<const Update> updates) {
  std::vector<detail::MatrixBlock> steps;  // of what is split; the others go one by one, without room for all
  std::vector<const Update*> of;
  for (const Update& u : updates) {
    const MuonOptions& o = options(u.index);
    const Shape& shape = parameters()[u.index].shape();
    if (!o.orthogonal || shape.rank() != 2) {
      update_rest(u);
      continue;
    }
    Tensor step = momentum_step(u);
    if (numel(shape) == 0) continue;
    if (u.layout && u.layout->split()) {
      steps.push_back({step, shape, u.layout});
      of.push_back(&u);
    } else {
      apply(u, orthogonalized(step, o));
    }
  }
  auto orthogonal = [&](size_t i, const Tensor& whole) { return orthogonalized(whole, options(of[i]->index)); };
  detail::on_whole_matrices(steps, orthogonal, "muon");
  for (size_t i = 0; i < steps.size(); ++i) apply(*of[i], steps[i].block);
}

// The momentum moves on; U.
Tensor Muon::momentum_step(const Update& u) {
  const MuonOptions& o = options(u.index);
  Tensor g = cleave::detail::dense_copy(u.gradient, u.value.dtype()), momentum = state_block(u, "momentum_buffer");
  mul_(momentum, o.momentum);
  add_(momentum, g);
  if (!o.nesterov) return momentum;
  add_(g, momentum, o.momentum);
  return g;
}

void Muon::apply(const Update& u, const Tensor& step) {
  const MuonOptions& o = options(u.index);
  double lr = lr_of(u.index);
  mul_(u.value, 1 - lr * o.weight_decay);
  add_(u.value, step, -lr * adjusted(o, parameters()[u.index].shape()));
}

void Muon::update_rest(const Update& u) {
  const MuonOptions& o = options(u.index);
  detail::update_adam(u.value, u.gradient, state_block(u, "exp_avg"), state_block(u, "exp_avg_sq"),
                      detail::adam_step(*o.rest, o.rest->lr * factor_of(u.index), u.step, true));
}

std::vector<std::string> Muon::state_names() const { return {"momentum_buffer", "exp_avg", "exp_avg_sq"}; }

}  // namespace cleave::optim
