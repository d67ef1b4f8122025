// Redistribution: the cache of plans, what they say of themselves, and their execution.
#include <cleave/dist/redistribution.h>

#include <unordered_map>

#include <cleave/core/error.h>
#include <cleave/core/text.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/observer.h>
#include <cleave/dist/planner.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/mesh_exchange.h>
#include <cleave/dist/redistribute/steps.h>
#include <fmt/format.h>

namespace cleave::dist {

namespace {

std::string mesh_text(const LayoutData& layout) { return to_string(DeviceMesh(layout.mesh)); }

void check_ends(const TensorType& type, const LayoutData& to) {
  if (!type.layout)
    throw LayoutError(
        fmt::format("[redistribute] {} is a plain tensor; distribute or replicate it first", to_string(type)));
  if (type.layout->mesh != to.mesh && (type.layout->partial || to.partial))
    throw LayoutError(fmt::format(
        "[redistribute] {} cannot go to \"{}\" on {} in one step: tensors move between meshes without partial axes; "
        "redistribute to a layout without them on the same mesh first",
        describe(type), to_string(Layout(&to)), mesh_text(to)));
}

// What replicating everything and cutting it again would take, to compare with.
std::string naive_text(const RedistributionPlan& plan) {
  const LayoutData& from = *plan.from.layout;
  LayoutData summed = from, whole = from;
  summed.partial = whole.partial = 0;
  for (AxisList& list : whole.dims) list = AxisList{};
  int64_t block = block_bytes(plan.from.shape, plan.from.dtype, from);
  int64_t bytes = 0, picoseconds = 0;
  auto add = [&](const LayoutData& a, const LayoutData& b) {
    auto step = price_step(a, b, block);
    bytes += step->bytes;
    picoseconds += step->picoseconds;
  };
  if (from.partial) add(from, summed);
  if (from.split()) add(summed, whole);
  return fmt::format("replicating it whole and cutting that would hand in {}, take {:.1f} us and hold {}",
                     bytes_text(bytes), static_cast<double>(picoseconds) * 1e-6,
                     bytes_text(block + numel(plan.from.shape) * size_of(plan.from.dtype)));
}

std::string reason_for(const RedistributionPlan& plan, int considered) {
  int collectives = 0;
  for (const Step& s : plan.steps) collectives += s.kind != StepKind::cut && s.kind != StepKind::keep_on_first;
  if (plan.steps.empty()) return "the layouts are equal";
  if (collectives == 0) return "every rank already holds what it needs: nothing is sent";
  if (plan.from.layout->mesh != plan.to->mesh)
    return "the meshes differ: each rank gets its block from ranks that hold parts of it";
  std::string reason = plan.steps.size() == 1 ? "a single collective does it"
                                              : fmt::format(
                                                    "the cheapest way over {} layouts between the two that "
                                                    "holds at most twice the larger block",
                                                    considered);
  bool to_whole = plan.to->split() == 0 && plan.to->partial == 0;
  return to_whole ? reason : reason + "; " + naive_text(plan);
}

void plan_between_meshes(RedistributionPlan& plan) {
  const TensorType& type = plan.from;
  steps::MeshExchange exchange(type.shape, *type.layout, *plan.to);
  Step step;
  step.kind = StepKind::box_exchange;
  step.axes = type.layout->mesh->all_axes();
  step.before = type.layout;
  step.after = plan.to;
  auto ranks = static_cast<int64_t>(exchange.ranks().size());
  if (ranks > 1) step.bytes = exchange.busiest() * size_of(type.dtype);
  StepPrice price = price_exchange(ranks, step.bytes);
  step.link_bytes = price.link_bytes;
  step.seconds = static_cast<double>(price.picoseconds) * 1e-12;
  step.peak_bytes = block_bytes(type.shape, type.dtype, *type.layout) + block_bytes(type.shape, type.dtype, *plan.to);
  plan.steps.push_back(step);
}

RedistributionPlan make_plan(const TensorType& type, const LayoutData* to) {
  check_ends(type, *to);
  RedistributionPlan plan{.from = type, .to = to};
  int considered = 0;
  if (type.layout->mesh != to->mesh) {
    plan_between_meshes(plan);
  } else {
    Path path = shortest_path(type.shape, type.dtype, type.layout, to);
    plan.steps = std::move(path.steps);
    considered = path.layouts_considered;
  }
  for (const Step& s : plan.steps) {
    plan.bytes += s.bytes;
    plan.link_bytes += s.link_bytes;
    plan.seconds += s.seconds;
    plan.peak_bytes = std::max(plan.peak_bytes, s.peak_bytes);
  }
  plan.reason = reason_for(plan, considered);
  return plan;
}

struct Key {
  TensorType from;
  const LayoutData* to;
  friend bool operator==(const Key&, const Key&) = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = reinterpret_cast<uintptr_t>(key.to) ^ (reinterpret_cast<uintptr_t>(key.from.layout) << 20) ^
                 static_cast<uint64_t>(key.from.dtype);
    for (int64_t s : key.from.shape) h = (h ^ static_cast<uint64_t>(s)) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    return static_cast<size_t>(h * 0x9E3779B97F4A7C15u >> 16);
  }
};
using Plans = std::unordered_map<Key, RedistributionPlan, KeyHash>;
constexpr size_t kMaxPlans = 8192;  // programs with ever new shapes must not grow

}  // namespace

std::string_view to_string(StepKind kind) {
  constexpr std::string_view names[] = {"cut",        "all_gather",    "all_to_all",  "reduce_scatter",
                                        "all_reduce", "keep_on_first", "box_exchange"};
  return names[static_cast<size_t>(kind)];
}

std::string to_string(const RedistributionPlan& plan) {
  bool meshes = plan.from.layout->mesh != plan.to->mesh;
  auto type_of = [&](const LayoutData* layout) {
    TensorType type{plan.from.dtype, plan.from.shape, layout};
    return meshes ? describe(type) : to_string(type);
  };
  std::string out = fmt::format("{} -> {}\n", describe(plan.from), type_of(plan.to));
  for (const Step& s : plan.steps)
    out += fmt::format("  {} over {}: {} -> {}, {}, {:.1f} us\n", to_string(s.kind), s.before->mesh->axis_names(s.axes),
                       type_of(s.before), type_of(s.after), bytes_text(s.bytes), s.seconds * 1e6);
  return out + fmt::format("  total: {} handed in by the busiest rank, {:.1f} us, blocks of at most {} at once\n  {}\n",
                           bytes_text(plan.bytes), plan.seconds * 1e6, bytes_text(plan.peak_bytes), plan.reason);
}

RedistributionPlan explain(const TensorType& type, Layout to) {
  return plan_redistribution(type, to.resolve(type.shape.rank()).data());
}

const RedistributionPlan& plan_redistribution(const TensorType& type, const LayoutData* to) {
  if (!type.layout) check_ends(type, *to);
  static const char key = 0;
  auto& cache = type.layout->mesh->cache(&key);
  if (!cache) cache = std::make_shared<Plans>();
  Plans& plans = *static_cast<Plans*>(cache.get());
  auto found = plans.find({type, to});
  if (found != plans.end()) return found->second;
  if (plans.size() >= kMaxPlans) plans.clear();
  return plans.emplace(Key{type, to}, make_plan(type, to)).first->second;
}

namespace {

Tensor run_step(const Tensor& x, const Step& step, const char* label) {
  switch (step.kind) {
    case StepKind::cut:
      return steps::cut(x, step);
    case StepKind::all_gather:
      return steps::all_gather(x, step, label);
    case StepKind::all_to_all:
      return steps::all_to_all(x, step, label);
    case StepKind::reduce_scatter:
      return steps::reduce_scatter(x, step, label);
    case StepKind::all_reduce:
      return steps::all_reduce(x, step, label);
    case StepKind::keep_on_first:
      return steps::keep_on_first(x, step);
    case StepKind::box_exchange:
      break;
  }
  return steps::box_exchange(x, step, label);
}

}  // namespace

Tensor redistribute_data(const Tensor& x, const LayoutData* to, const char* label) {
  TensorType type = x.type();
  if (type.layout == to) return x.detach();
  RedistributionSpan span(label, type, to, x.storage());
  const RedistributionPlan& plan = plan_redistribution(type, to);
  if (type.layout->mesh != to->mesh) return steps::mesh_exchange(x, to, label);
  if (!to->mesh->member()) return steps::make_block(x, to);
  Tensor out = x.detach();
  for (const Step& step : plan.steps) out = run_step(out, step, label);
  return out;
}

Tensor start_redistribution(const Tensor& x, const LayoutData* to, const char* label) {
  TensorType type = x.type();
  const MeshState& mesh = *to->mesh;
  if (mesh.world().overlaps() && type.layout != to && type.layout->mesh == &mesh && mesh.member()) {
    const RedistributionPlan& plan = plan_redistribution(type, to);
    const Step& step = plan.steps.front();
    bool gathers = step.kind == StepKind::all_gather, scatters = step.kind == StepKind::reduce_scatter;
    if (plan.steps.size() == 1 && (gathers || scatters)) {
      RedistributionSpan span(label, type, to, x.storage());
      return gathers ? steps::all_gather(x, step, label, true) : steps::reduce_scatter(x, step, label, true);
    }
  }
  return redistribute_data(x, to, label);
}

}  // namespace cleave::dist
