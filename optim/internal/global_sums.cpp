#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/optim/internal/global_sums.h>

#include <utility>

namespace cleave::optim::detail {

namespace {

constexpr Kernel kernel{
    .cpu = [](const KernelCall& c) { cpu::reduce(c.attributes.as<cpu::Reduce>(), *c.in[0], *c.out[0]); },
    .cpu_scratch =
        [](const KernelCall& c) { return cpu::reduce_scratch(c.attributes.as<cpu::Reduce>(), *c.in[0], *c.out[0]); }};

}  // namespace

Tensor GlobalSums::add(cpu::Reduce kind, const Tensor& block, const dist::LayoutData* layout, uint32_t dims) {
  Shape shape = block.shape();
  dist::AxisMask axes = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!(dims >> d & 1)) continue;
    shape[d] = 1;
    if (layout) axes |= layout->dims[static_cast<size_t>(d)].mask();
  }
  Tensor sum = cleave::detail::make_tensor(shape, DType::f64, block.device());
  cleave::detail::fill_view(sum.device(), sum.impl()->view, 0.0);
  const View* in[] = {&cleave::detail::elements(block)};
  const View* out[] = {&sum.impl()->view};
  launch(kernel, block.device(), "global_sums", {in, out, kind});
  if (axes) terms_.push_back({layout->mesh, axes, sum});
  return sum;
}

// The terms on the same axes as `terms_[first]`, in one collective.
void GlobalSums::reduce(size_t first, const char* label) {
  const Term head = terms_[first];
  std::vector<Tensor> sums;
  int64_t count = 0;
  for (size_t i = first; i < terms_.size(); ++i)
    if (terms_[i].sum.defined() && terms_[i].mesh == head.mesh && terms_[i].axes == head.axes) {
      count += numel(terms_[i].sum);
      sums.push_back(std::exchange(terms_[i].sum, {}));
    }
  Device device = head.sum.device();
  Tensor packed = cleave::detail::make_tensor(Shape{count}, DType::f64, device);
  auto part = [&](int64_t at, const Tensor& sum) {
    View view = cleave::detail::sub_view(packed.impl()->view, Shape{at}, Shape{numel(sum)});
    Tensor flat = cleave::detail::make_view(sum, cleave::detail::elements(sum), sum.shape(), nullptr);
    View whole = flat.impl()->view;
    whole.shape = Shape{numel(sum)};
    whole.strides = Strides{1};
    return std::pair{view, whole};
  };
  int64_t at = 0;
  for (const Tensor& sum : sums) {
    auto [place, value] = part(at, sum);
    cleave::detail::copy_view(device, value, place);
    at += numel(sum);
  }
  head.mesh->communicator(head.axes).all_reduce(packed.impl()->view.data, count, DType::f64, dist::ReduceOp::sum,
                                                device, label);
  at = 0;
  for (const Tensor& sum : sums) {
    auto [place, value] = part(at, sum);
    cleave::detail::copy_view(device, place, value);
    at += numel(sum);
  }
}

void GlobalSums::finish(const char* label) {
  for (size_t i = 0; i < terms_.size(); ++i)
    if (terms_[i].sum.defined()) reduce(i, label);
  terms_.clear();
}

double GlobalSums::value(const Tensor& sum) { return sum.device() == Device::Cpu ? *sum.data<double>() : 0.0; }

}  // namespace cleave::optim::detail
