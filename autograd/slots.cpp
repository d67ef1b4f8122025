#include <cleave/autograd/node.h>
#include <cleave/autograd/slots.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/under_way.h>

namespace cleave::autograd {
namespace {

Tensor zeros_like(const Tensor& x) {
  Tensor out = detail::make_tensor(x.shape(), x.dtype(), x.device());
  detail::fill_view(x.device(), out.impl()->view, 0.0);
  return out;
}

// Adds x to acc: in place if acc is ours, else into a new one that then is.
void add_into(Tensor& acc, bool& owned, const Tensor& x) {
  if (owned) return detail::accumulate_view(acc.device(), detail::elements(x), detail::elements(acc));
  Tensor sum = detail::make_tensor(acc.shape(), acc.dtype(), acc.device());
  detail::add_views(acc.device(), detail::elements(acc), detail::elements(x), sum.impl()->view);
  acc = sum;
  owned = true;
}

}  // namespace

void keep_on_first(Cotangent& cotangent, const LayoutData* layout, AxisMask axes) {
  if (!axes) return;
  if (!layout->mesh->is_first(axes)) cotangent.value = zeros_like(cotangent.value);
  cotangent.partial |= axes;
}

AxisMask Slots::any() const {
  AxisMask m = 0;
  for (const Term& t : terms_) m |= t.value.partial;
  return m;
}

AxisMask Slots::all() const {
  AxisMask m = ~AxisMask{0};
  for (const Term& t : terms_) m &= t.value.partial;
  return terms_.empty() ? 0 : m;
}

void Slots::add(Cotangent term, DType dtype) {
  for (Term& t : terms_) {
    if (t.value.partial != term.partial) continue;
    add_into(t.value.value, t.owned, term.value);
    return;
  }
  bool owned = detail::is_unique(term.value) && term.value.is_contiguous();
  if (term.value.dtype() != dtype) {
    term.value = detail::dense_copy(term.value, dtype);
    owned = true;
  }
  terms_.push_back({std::move(term), owned});
}

void Slots::take(Slots&& other) {
  if (terms_.empty()) {
    terms_ = std::move(other.terms_);
  } else {
    for (Term& t : other.terms_) {
      DType dtype = t.value.value.dtype();
      add(std::move(t.value), dtype);
    }
  }
  other.terms_.clear();
}

Cotangent Slots::sum(const LayoutData* layout) {
  AxisMask mask = any();
  Cotangent out{{}, mask};
  bool owned = false;
  for (Term& t : terms_) {
    if (layout && !layout->mesh->is_first(mask & ~t.value.partial)) continue;
    if (!out.value.defined()) {
      out.value = t.value.value;
      owned = t.owned;
    } else {
      add_into(out.value, owned, t.value.value);
    }
  }
  if (!out.value.defined()) out.value = zeros_like(terms_.front().value.value);
  terms_.clear();
  terms_.push_back({out, owned});
  return out;
}

Cotangent Slots::merge(const LayoutData* layout, AxisMask target, const char* label) {
  Cotangent total = sum(layout);
  AxisMask reduce = total.partial & ~target;
  if (reduce) {
    bool ours = terms_.front().owned && total.value.is_contiguous();
    if (!ours) total.value = detail::dense_copy(total.value, total.value.dtype());
    reduce_over(total.value, layout, reduce, label);
    total.partial &= target;
  }
  terms_.clear();
  return total;
}

void reduce_over(const Tensor& value, const LayoutData* layout, AxisMask axes, const char* label) {
  if (!axes || !layout->mesh->member()) return;
  const View& v = detail::elements(value);
  layout->mesh->communicator(axes).all_reduce(v.data, v.numel(), v.dtype, dist::ReduceOp::sum, value.device(), label);
}

void start_reduce_over(const Tensor& value, const LayoutData* layout, AxisMask axes, const char* label) {
  if (!axes || !layout->mesh->member()) return;
  const dist::MeshState& mesh = *layout->mesh;
  if (!mesh.world().overlaps()) return reduce_over(value, layout, axes, label);
  const View& v = detail::elements(value);
  auto started = mesh.background(axes).start({.kind = dist::CollectiveKind::all_reduce,
                                              .send = v.data,
                                              .recv = v.data,
                                              .count = v.numel(),
                                              .dtype = v.dtype,
                                              .device = value.device(),
                                              .label = label});
  dist::steps::put_under_way(std::move(started), value);
}

}  // namespace cleave::autograd
