#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/op.h>

namespace cleave {
namespace {

void require_writable(const char* op, const Tensor& x) {
  if (x.requires_grad() && grad_enabled())
    throw GradError(op_message(
        op,
        describe(x.type()) +
            " requires grad and cannot be written in place while the tape records; use NoGrad or the out-of-place op"));
  if (x.impl()->storage->redistributed())
    throw LayoutError(op_message(
        op, describe(x.type()) + " is the result of a redistribution: a write would not reach the tensor it came from; "
                                 "write to that tensor, or to a clone"));
}

// A value that is not zero cannot be put into a partial tensor on every rank: the first holds it.
bool holds_value(const Tensor& x) {
  const dist::LayoutData* layout = x.impl()->layout;
  return !layout || layout->mesh->is_first(layout->partial);
}

// The source's block under the destination's layout.
Tensor source_block(const char* op, const Tensor& x, const Tensor& source) {
  if (!(x.shape() == source.shape()))
    throw ShapeError(op_message(op, describe(x.type()) + " and " + describe(source.type()) + " have different shapes"));
  if (x.is_distributed() != source.is_distributed())
    throw LayoutError(op_message(op, "mixes " + describe(x.type()) + " and " + describe(source.type()) +
                                         "; use replicate(x, mesh) on the plain one"));
  if (!x.is_distributed()) return source.detach();
  return dist::redistribute_data(source.detach(), x.impl()->layout, op).local();
}

bool overlaps(const Tensor& a, const Tensor& b) { return a.storage() == b.storage(); }

}  // namespace

void fill_(const Tensor& x, double value) {
  require_writable("fill_", x);
  detail::fill_view(x.impl()->device, detail::elements(x), holds_value(x) ? value : 0.0);
  x.bump_version();
}

void copy_(const Tensor& x, const Tensor& source) {
  require_writable("copy_", x);
  NoGrad off;
  Tensor from = source_block("copy_", x, source);
  if (overlaps(x, from)) from = detail::dense_copy(from, from.dtype());
  detail::copy_view(x.impl()->device, detail::elements(from), detail::elements(x));
  x.bump_version();
}

void add_(const Tensor& x, const Tensor& y, double alpha) {
  require_writable("add_", x);
  NoGrad off;
  Tensor from = source_block("add_", x, y);
  if (alpha != 1) from = from * alpha;
  if (overlaps(x, from)) from = detail::dense_copy(from, from.dtype());
  detail::accumulate_view(x.impl()->device, detail::elements(from), detail::elements(x));
  x.bump_version();
}

void mul_(const Tensor& x, double factor) {
  require_writable("mul_", x);
  static constexpr Kernel kernel{
      .cpu =
          [](const KernelCall& c) {
            cpu::pointwise(Pointwise::mul_scalar, c.in, *c.out[0], c.attributes.as<PointwiseParams>());
          },
      .cpu_scratch = [](const KernelCall& c) { return cpu::pointwise_scratch(c.in, *c.out[0]); }};
  const View* v[] = {&detail::elements(x)};
  PointwiseParams params{factor, 0};
  launch(kernel, x.impl()->device, "mul_", {v, v, params});
  x.bump_version();
}

}  // namespace cleave
