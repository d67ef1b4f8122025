#include <cleave/core/cpu/row_plan.h>

namespace cleave::cpu {

RowPlan::RowPlan(const Shape& outer, std::span<const Strides> strides) : views_(static_cast<int>(strides.size())) {
  rows_ = numel(outer);
  Shape sizes;
  std::array<Strides, kMost> steps;
  for (int d = 0; d < outer.rank(); ++d) {
    if (outer[d] == 1) continue;
    int last = sizes.rank() - 1;
    bool joins = last >= 0;
    for (int v = 0; joins && v < views_; ++v) joins = steps[v][last] == strides[v][d] * outer[d];
    if (joins)
      sizes[last] *= outer[d];
    else
      sizes.push_back(outer[d]);
    for (int v = 0; v < views_; ++v) {
      if (joins)
        steps[v][last] = strides[v][d];
      else
        steps[v].push_back(strides[v][d]);
    }
  }
  int last = sizes.rank() - 1;
  if (last >= 0) {
    inner_ = std::max<int64_t>(1, sizes[last]);
    sizes.erase(last);
    for (int v = 0; v < views_; ++v) {
      inner_strides_[v] = steps[v][last];
      steps[v].erase(last);
    }
  }
  sizes_ = sizes;
  steps_ = steps;
}

std::array<int64_t, RowPlan::kMost> RowPlan::offsets(int64_t index) const {
  std::array<int64_t, kMost> out{};
  for (int d = sizes_.rank() - 1; d >= 0; --d) {
    int64_t at = index % sizes_[d];
    index /= sizes_[d];
    for (int v = 0; v < views_; ++v) out[v] += at * steps_[v][d];
  }
  return out;
}

Strides without(const Strides& strides, int dim) {
  Strides out = strides;
  out.erase(dim);
  return out;
}

Shape without(const Shape& shape, int dim) {
  Shape out = shape;
  out.erase(dim);
  return out;
}

}  // namespace cleave::cpu
