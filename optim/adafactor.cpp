#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/unary.h>
#include <cleave/optim/adafactor.h>
#include <cleave/optim/internal/global_sums.h>
#include <cleave/optim/internal/options.h>

#include <algorithm>
#include <cmath>

namespace cleave::optim {

namespace {

void check_group(const Group<AdafactorOptions>& g) {
  const AdafactorOptions& o = g.options;
  detail::require_positive_or_zero("adafactor", "lr", o.lr);
  detail::require_positive_or_zero("adafactor", "eps1", o.eps1);
  detail::require_positive_or_zero("adafactor", "eps2", o.eps2);
  detail::require_positive_or_zero("adafactor", "weight_decay", o.weight_decay);
  detail::require_fraction("adafactor", "beta1", o.beta1);
  detail::require(o.clip > 0, "adafactor", "clip", o.clip, "be above 0");
}

constexpr Kernel kernel{
    .cpu = [](const KernelCall& c) { cpu::factored_direction(*c.in[0], *c.in[1], *c.in[2], *c.out[0]); }};

bool factored(const Shape& shape) { return shape.rank() >= 2; }
uint32_t column_bit(const Shape& shape) { return 1u << (shape.rank() - 1); }
uint32_t row_bit(const Shape& shape) { return 1u << (shape.rank() - 2); }

// kept = (1 - share) * kept + share * fresh.
void blend(const Tensor& kept, const Tensor& fresh, double share) {
  mul_(kept, 1 - share);
  add_(kept, cast(fresh, kept.dtype()), share);
}

double rms(const Tensor& sum, const Shape& shape) {
  return std::sqrt(detail::GlobalSums::value(sum) / static_cast<double>(std::max<int64_t>(numel(shape), 1)));
}

}  // namespace

/// Of one parameter's step, over its global elements.
struct Adafactor::Sums {
  Tensor weight;               // w^2
  Tensor row, column, matrix;  // g^2 over columns, rows, both
  Tensor old_row;              // the row statistics that were, over rows
  Tensor length;               // u^2
};

Adafactor::Adafactor(const std::vector<nn::Parameter>& p, const AdafactorOptions& o) : Adafactor({{p, o, {}}}) {}
Adafactor::Adafactor(const std::vector<Tensor>& tensors, const AdafactorOptions& o)
    : Adafactor(parameters_of(tensors), o) {}
Adafactor::Adafactor(std::vector<Group<AdafactorOptions>> groups) : GroupedOptimizer(std::move(groups), check_group) {}

uint32_t Adafactor::summed_dims(const std::string& name, const Shape& shape) const {
  if (!factored(shape)) return 0;
  return name == "row_var" ? column_bit(shape) : name == "col_var" ? row_bit(shape) : 0;
}

std::vector<std::string> Adafactor::state_names() const { return {"row_var", "col_var", "variance", "exp_avg"}; }

void Adafactor::update(const Update& u) { update_all({&u, 1}); }

void Adafactor::update_all(std::span<const Update> updates) {
  using cpu::Reduce;
  std::vector<Sums> all(updates.size());
  detail::GlobalSums sums;
  for (size_t i = 0; i < updates.size(); ++i) {
    const Update& u = updates[i];
    Sums& s = all[i];
    const Shape& shape = u.value.shape();
    if (options(u.index).scale_parameter) s.weight = sums.add(Reduce::sum_square, u.value, u.layout);
    if (!factored(shape)) continue;
    uint32_t rows = row_bit(shape), columns = column_bit(shape);
    s.row = sums.add(Reduce::sum_square, u.gradient, u.layout, columns);
    s.column = sums.add(Reduce::sum_square, u.gradient, u.layout, rows);
    s.matrix =
        sums.add(Reduce::sum, s.row, u.layout, rows | columns);  // of this rank's rows, before they are summed up
    s.old_row = sums.add(Reduce::sum, state_block(u, "row_var"), u.layout, rows);
  }
  sums.finish("adafactor");
  std::vector<Tensor> directions;
  for (size_t i = 0; i < updates.size(); ++i) {
    directions.push_back(direction(updates[i], all[i]));
    all[i].length = sums.add(Reduce::sum_square, directions[i], updates[i].layout);
  }
  sums.finish("adafactor");
  for (size_t i = 0; i < updates.size(); ++i) apply(updates[i], directions[i], all[i]);
}

// u before it is clipped; the second moments move on.
Tensor Adafactor::direction(const Update& u, const Sums& s) {
  const AdafactorOptions& o = options(u.index);
  double share = std::pow(static_cast<double>(u.step), o.beta2_decay);
  const Shape& shape = parameters()[u.index].shape();
  if (!factored(shape)) {
    Tensor v = state_block(u, "variance");
    Tensor g = cleave::detail::dense_copy(u.gradient, u.value.dtype());
    blend(v, square(g) + o.eps1, share);
    return g / sqrt(v);
  }
  auto m = static_cast<double>(std::max<int64_t>(shape[shape.rank() - 2], 1));
  auto n = static_cast<double>(std::max<int64_t>(shape[shape.rank() - 1], 1));
  Tensor row = state_block(u, "row_var"), column = state_block(u, "col_var");
  blend(row, s.row / n + o.eps1, share);
  blend(column, s.column / m + o.eps1, share);
  // The mean of the new row statistics, without another collective.
  Tensor mean = s.old_row * ((1 - share) / m) + (s.matrix / (m * n) + o.eps1) * share;
  // As two factors, so that the product of small ones is not lost in f32.
  Tensor by_row = rsqrt(row / cast(mean, row.dtype())), by_column = rsqrt(column);
  Tensor out = cleave::detail::make_tensor(u.value.shape(), u.value.dtype(), u.value.device());
  const View* in[] = {&cleave::detail::elements(u.gradient), &cleave::detail::elements(by_row),
                      &cleave::detail::elements(by_column)};
  const View* to[] = {&out.impl()->view};
  launch(kernel, out.device(), "adafactor", {in, to, {}});
  return out;
}

void Adafactor::apply(const Update& u, const Tensor& direction, const Sums& s) {
  const AdafactorOptions& o = options(u.index);
  const Shape& shape = parameters()[u.index].shape();
  double factor = factor_of(u.index);
  double rate = (o.relative_step ? std::min(o.lr, 1 / std::sqrt(static_cast<double>(u.step))) : o.lr) * factor;
  if (o.scale_parameter) rate *= std::max(o.eps2, rms(s.weight, shape));
  double clip = std::max(1.0, rms(s.length, shape) / o.clip);
  if (o.weight_decay != 0) mul_(u.value, 1 - lr_of(u.index) * o.weight_decay);
  if (o.beta1 == 0) {
    add_(u.value, direction, -rate / clip);
    return;
  }
  Tensor momentum = state_block(u, "exp_avg");
  mul_(momentum, o.beta1);
  add_(momentum, direction, (1 - o.beta1) / clip);
  add_(u.value, momentum, -rate);
}

}  // namespace cleave::optim
