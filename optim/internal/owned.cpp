#include <cleave/autograd/redistribute.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/redistribution.h>
#include <cleave/optim/internal/owned.h>

namespace cleave::optim::detail {

Tensor own_copy(const Tensor& x, DType dtype) {
  const auto& impl = *x.impl();
  Tensor out = cleave::detail::make_tensor(impl.global, impl.view.shape, dtype, impl.device, impl.layout, impl.absent);
  cleave::detail::copy_view(impl.device, cleave::detail::elements(x), out.impl()->view);
  return out;
}

Tensor in_layout(const Tensor& x, const dist::LayoutData* to) {
  if (x.impl()->layout == to) return x;
  if (!to) return dist::full_tensor(x);
  return x.is_distributed() ? dist::redistribute_data(x, to, "optimizer")
                            : dist::distribute(x.detach(), dist::Layout(to));
}

}  // namespace cleave::optim::detail
