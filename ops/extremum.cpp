// amax, amin, argmax, argmin, and max/min with indices.
#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/index.h>
#include <cleave/ops/internal/pointwise_op.h>
#include <cleave/ops/internal/reduce_op.h>
#include <cleave/ops/internal/replaced.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

namespace cleave {

using namespace reduce_op;

const dist::LayoutData* reduce_op::result_layout(const dist::LayoutData* x, const ReduceAttributes& a, bool partial,
                                                 dist::ReduceOp op) {
  dist::LayoutData content;
  content.mesh = x->mesh;
  dist::AxisMask reduced = 0;
  for (int d = 0; d < x->rank; ++d) {
    const dist::AxisList& axes = x->dims[static_cast<size_t>(d)];
    if (a.has(d)) reduced |= axes.mask();
    if (!a.has(d))
      content.dims[static_cast<size_t>(content.rank++)] = axes;
    else if (a.keepdim)
      ++content.rank;
  }
  if (partial && reduced) {
    content.partial = reduced;
    content.op = op;
  }
  return x->mesh->intern(content);
}

Tensor reduce_op::reduce_split(const Kernel& kernel, const char* name, const Tensor& x, const ReduceAttributes& a,
                               DType dtype, dist::ReduceOp op) {
  NoGrad off;
  Tensor block = x.local();
  Shape global = reduced_shape(x.shape(), a);
  Tensor reduced = run_kernel(kernel, name, {&block}, reduced_shape(block.shape(), a), dtype, a);
  Tensor terms = from_block(reduced, global, result_layout(x.impl()->layout, a, true, op));
  return dist::redistribute_data(terms, result_layout(x.impl()->layout, a, false, op), name);
}

namespace ops {
namespace {

void infer_extremum(const InferCall& call, std::span<OutputType> out) {
  const auto& a = call.attributes.as<ReduceAttributes>();
  for (int d = 0; d < call.shape(0).rank(); ++d)
    if (a.has(d) && call.shape(0)[d] == 0)
      throw ShapeError(op_message(call.op.name, "dim " + std::to_string(d) + " of " + describe(call.in[0]->type()) +
                                                    " is empty: it has no extremum"));
  out[0] = {call.dtype(0), reduced_shape(call.shape(0), a)};
}
void infer_index(const InferCall& call, std::span<OutputType> out) {
  infer_extremum(call, out);
  out[0].dtype = DType::i64;
}
Rule extremum_rule(const RuleCall& call) { return reduced_rule(call, true); }

template <bool Max>
void extremum_kernel(const KernelCall& c) {
  cpu::reduce(Max ? cpu::Reduce::max : cpu::Reduce::min, *c.in[0],
              with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>()));
}
template <cpu::Reduce K>
int64_t scratch(const KernelCall& c) {
  return cpu::reduce_scratch(K, *c.in[0],
                             with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>()));
}
template <bool Max>
inline constexpr Kernel extremum{.cpu = extremum_kernel<Max>,
                                 .cpu_scratch = scratch<Max ? cpu::Reduce::max : cpu::Reduce::min>};

int only_dim(const ReduceAttributes& a) { return std::countr_zero(static_cast<unsigned>(a.mask)); }

template <bool Max>
void index_kernel(const KernelCall& c) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  cpu::arg_extremum(Max, *c.in[0], only_dim(a), with_kept_dims(*c.out[0], c.in[0]->shape, a));
}
template <bool Max>
inline constexpr Kernel index_of{.cpu = index_kernel<Max>};

// 1 where x is the extremum y (blocks, plain).
Tensor is_extremum(const Tensor& x, const Tensor& y, const ReduceAttributes& a) {
  Tensor wide = expand_to(y, x.shape(), a);
  return run_kernel(pointwise_op::kernel<Pointwise::eq>, "eq", {&x, &wide}, x.shape(), x.dtype());
}

Tensor count_ties(const Tensor& mask, const ReduceAttributes& a, DType dtype) {
  static constexpr Kernel kernel{
      .cpu =
          [](const KernelCall& c) {
            cpu::reduce(cpu::Reduce::sum, *c.in[0],
                        with_kept_dims(*c.out[0], c.in[0]->shape, c.attributes.as<ReduceAttributes>()));
          },
      .cpu_scratch = scratch<cpu::Reduce::sum>};
  return run_kernel(kernel, "count", {&mask}, reduced_shape(mask.shape(), a), dtype, a);
}

Tensor shared_gradient(const Tensor& mask, const Tensor& count, const Tensor& g, const ReduceAttributes& a) {
  Tensor share = run_kernel(pointwise_op::kernel<Pointwise::div>, "div", {&g, &count}, g.shape(), g.dtype());
  Tensor wide = expand_to(share, mask.shape(), a);
  return run_kernel(pointwise_op::kernel<Pointwise::mul>, "mul", {&mask, &wide}, mask.shape(), mask.dtype());
}

void extremum_backward(const BackwardCall& c, std::span<Tensor> out) {
  const auto& a = c.attributes.as<ReduceAttributes>();
  Tensor mask = is_extremum(c.inputs[0], c.outputs[0], a);
  out[0] = shared_gradient(mask, count_ties(mask, a, accumulation(mask.dtype())), c.grads[0], a);
}

// Over split dims: all-reduce of the extremum, and of the tie count where a gradient will need it.
template <bool Max>
void extremum_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  const ReduceAttributes a = attributes.as<ReduceAttributes>();
  const Tensor& x = *in[0];
  const char* name = Max ? "amax" : "amin";
  out[0] = reduce_split(extremum<Max>, name, x, a, x.dtype(), Max ? dist::ReduceOp::max : dist::ReduceOp::min);
  if (!autograd::should_record(in)) return record_replaced(name, in, out, nullptr, {});
  const dist::LayoutData* layout = x.impl()->layout;
  Tensor mask = is_extremum(x.local(), out[0].local(), a);
  Tensor terms = from_block(count_ties(mask, a, accumulation(x.dtype())), out[0].shape(),
                            result_layout(layout, a, true, dist::ReduceOp::sum));
  Tensor count = dist::redistribute_data(terms, result_layout(layout, a, false, dist::ReduceOp::sum), name).local();
  record_replaced(name, in, out,
                  [mask, count, a](std::span<const Tensor> g) {
                    return std::vector<Tensor>{shared_gradient(mask, count, g[0], a)};
                  },
                  {0});
}

// The first index wins: each rank offers its own where it holds the extremum, the least offer counts.
template <bool Max>
void index_decompose(Inputs in, const Attributes& attributes, std::span<Tensor> out) {
  NoGrad off;
  const ReduceAttributes a = attributes.as<ReduceAttributes>();
  const Tensor& x = *in[0];
  const dist::LayoutData* layout = x.impl()->layout;
  const char* name = Max ? "argmax" : "argmin";
  Tensor best =
      reduce_split(extremum<Max>, name, x, a, x.dtype(), Max ? dist::ReduceOp::max : dist::ReduceOp::min).local();
  Tensor block = x.local();
  Shape shape = reduced_shape(block.shape(), a);
  constexpr double kNone = 9007199254740992.0;  // 2^53: larger than any index, exact as a number
  Tensor offer = detail::make_tensor(shape, DType::i64, block.device());
  if (block.shape()[only_dim(a)] == 0) {
    detail::fill_view(offer.device(), offer.impl()->view, kNone);
  } else {
    Tensor mine = run_kernel(extremum<Max>, name, {&block}, shape, x.dtype(), a);
    Tensor index = run_kernel(index_of<Max>, name, {&block}, shape, DType::i64, a);
    int64_t offset = dist::local_box(x.shape(), *layout).offset[only_dim(a)];
    Tensor holds = logical_or(eq(mine, best), logical_and(isnan(mine), isnan(best)));
    offer = masked_fill(index + offset, logical_not(holds), static_cast<int64_t>(kNone));
  }
  Tensor terms = from_block(offer, out.size() ? reduced_shape(x.shape(), a) : Shape{},
                            result_layout(layout, a, true, dist::ReduceOp::min));
  out[0] = dist::redistribute_data(terms, result_layout(layout, a, false, dist::ReduceOp::min), name);
}

std::vector<Sample> index_samples() {
  std::vector<Sample> out;
  for (const auto& [shape, dim] :
       {std::pair<Shape, int>{{5, 7}, 0}, {{5, 7}, 1}, {{2, 3, 4}, 1}, {{1}, 0}, {{0, 3}, 1}}) {
    ReduceAttributes a;
    a.mask = static_cast<uint8_t>(1 << dim);
    out.push_back({.inputs = {{shape, Fill::distinct}},
                   .attributes = sample_attributes(a),
                   .has_gradient = false,
                   .integers = true});
  }
  return out;
}

Cost cost(std::span<const View* const> in, std::span<const View* const>, const Attributes&) {
  double n = static_cast<double>(in[0]->numel());
  return {n, n * static_cast<double>(size_of(in[0]->dtype))};
}

}  // namespace

extern const OpDef amax{.name = "amax",
                        .infer = infer_extremum,
                        .layout = extremum_rule,
                        .key_bytes = ReduceAttributes::kKey,
                        .kernel = extremum<true>,
                        .backward = extremum_backward,
                        .saves = {.inputs = 1, .outputs = 1},
                        .decompose = extremum_decompose<true>,
                        .cost = cost,
                        .samples = [] { return samples(Fill::distinct, true, true, false); }};
extern const OpDef amin{.name = "amin",
                        .infer = infer_extremum,
                        .layout = extremum_rule,
                        .key_bytes = ReduceAttributes::kKey,
                        .kernel = extremum<false>,
                        .backward = extremum_backward,
                        .saves = {.inputs = 1, .outputs = 1},
                        .decompose = extremum_decompose<false>,
                        .cost = cost,
                        .samples = [] { return samples(Fill::distinct, true, true, false); }};
extern const OpDef argmax{.name = "argmax",
                          .infer = infer_index,
                          .layout = extremum_rule,
                          .key_bytes = ReduceAttributes::kKey,
                          .kernel = index_of<true>,
                          .decompose = index_decompose<true>,
                          .cost = cost,
                          .samples = index_samples};
extern const OpDef argmin{.name = "argmin",
                          .infer = infer_index,
                          .layout = extremum_rule,
                          .key_bytes = ReduceAttributes::kKey,
                          .kernel = index_of<false>,
                          .decompose = index_decompose<false>,
                          .cost = cost,
                          .samples = index_samples};

}  // namespace ops

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::amax, attributes_of("amax", x, dims, keepdim), x);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return apply(ops::amin, attributes_of("amin", x, dims, keepdim), x);
}
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  return apply(ops::argmax, attributes_of("argmax", x, dim, keepdim), x);
}
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) {
  return apply(ops::argmin, attributes_of("argmin", x, dim, keepdim), x);
}

namespace {
Extremum with_indices(const Tensor& x, int64_t dim, bool keepdim, Tensor index) {
  Tensor values = gather(x, dim, index);
  return keepdim ? Extremum{values, index} : Extremum{squeeze(values, dim), squeeze(index, dim)};
}
}  // namespace

Extremum max(const Tensor& x, int64_t dim, bool keepdim) { return with_indices(x, dim, keepdim, argmax(x, dim, true)); }
Extremum min(const Tensor& x, int64_t dim, bool keepdim) { return with_indices(x, dim, keepdim, argmin(x, dim, true)); }

}  // namespace cleave
