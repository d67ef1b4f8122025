#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/resolve_plan.h>
#include <cleave/nn/zero.h>

#include <algorithm>

namespace cleave::nn {

namespace {

void check(const Zero& zero) {
  if (zero.stage < 0 || zero.stage > 3)
    throw PlanError("[zero] stage " + std::to_string(zero.stage) + " is none of 0, 1, 2 and 3");
  if (zero.stage > 0 && zero.axes.empty())
    throw PlanError("[zero] stage " + std::to_string(zero.stage) + " needs mesh axes; name those that split the batch");
  for (auto axis = zero.axes.begin(); axis != zero.axes.end(); ++axis)
    if (std::find(zero.axes.begin(), axis, *axis) != axis)
      throw PlanError("[zero] the axis " + *axis + " is named twice");
}

}  // namespace

ShardingPlan zero(ShardingPlan plan, const Zero& options) {
  check(options);
  plan.zero = options;
  return plan;
}

namespace detail {

void check_zero(const Zero& zero, dist::DeviceMesh mesh) {
  check(zero);
  for (const std::string& name : zero.axes) {
    try {
      mesh.state()->axis(name);
    } catch (const LayoutError& e) { throw PlanError("[zero] " + std::string(e.what())); }
  }
}

namespace {

// `layout` with those of the axes that it does not use appended to one dim; itself if there is none to split.
const dist::LayoutData* split_further(const Zero& zero, const Shape& shape, const dist::LayoutData* layout) {
  const dist::MeshState& mesh = *layout->mesh;
  std::vector<int> axes;
  int64_t ways = 1;
  for (const std::string& name : zero.axes)
    if (int axis = mesh.axis(name); layout->dim_of(axis) < 0) {
      axes.push_back(axis);
      ways *= mesh.size(axis);
    }
  auto split = [&](int d) { return mesh.size_of(layout->dims[static_cast<size_t>(d)].mask()); };
  int best = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] % (split(d) * ways) == 0) {
      best = d;
      break;
    }
    if (best < 0 || shape[d] / split(d) > shape[best] / split(best)) best = d;
  }
  if (best < 0 || axes.empty()) return layout;
  dist::LayoutData content = *layout;
  for (int axis : axes) content.dims[static_cast<size_t>(best)].push_back(axis);
  return mesh.intern(content);
}

}  // namespace

StoragePlan zero_storage(const Zero& zero, const Shape& shape, const dist::LayoutData* layout) {
  if (zero.stage == 0) return {layout};
  const dist::LayoutData* further = split_further(zero, shape, layout);
  if (further == layout) return {layout};
  if (zero.stage == 3) return {further, layout};
  return {layout, nullptr, zero.stage == 2 ? further : nullptr, further};
}

}  // namespace detail
}  // namespace cleave::nn
