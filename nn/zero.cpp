#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/resolve_plan.h>
#include <cleave/nn/zero.h>

#include <algorithm>
#include <map>

namespace cleave::nn {

namespace {

using dist::LayoutData;

// The dim to split `parts` ways beyond its axes: the first that divides evenly, else the one with the largest blocks.
size_t dim_to_split(const Shape& shape, const LayoutData& layout, int64_t parts) {
  size_t best = 0;
  int64_t largest = -1;
  for (size_t d = 0; d < static_cast<size_t>(shape.rank()); ++d) {
    int64_t size = shape[static_cast<int>(d)], ways = layout.mesh->size_of(layout.dims[d].mask());
    if (size > 0 && size % (ways * parts) == 0) return d;
    if (size / ways > largest) {
      largest = size / ways;
      best = d;
    }
  }
  return best;
}

const LayoutData* split_further(const std::string& name, const Shape& shape, const LayoutData* layout,
                                const std::vector<int>& axes) {
  if (shape.rank() == 0) return layout;
  LayoutData content = *layout;
  int64_t parts = 1;
  for (int axis : axes) {
    if (layout->split() & dist::axis_bit(axis))
      throw LayoutError("[zero] " + name + " is stored over " + layout->mesh->axes()[static_cast<size_t>(axis)].name +
                        " already: \"" + to_string(dist::Layout(layout)) +
                        "\"; name axes over which its ranks hold the same");
    parts *= layout->mesh->size(axis);
  }
  size_t dim = dim_to_split(shape, *layout, parts);
  for (int axis : axes) content.dims[dim].push_back(axis);
  return layout->mesh->intern(content);
}

// "stored => used => gradient => state", without what the first ones imply.
std::string entry(const detail::StoragePlan& plan, const LayoutData* further, int stage) {
  auto text = [](const LayoutData* layout) { return to_string(dist::Layout(layout)); };
  std::string stored = text(plan.storage), used = plan.use ? text(plan.use) : stored;
  if (stage == 3) return text(further) + " => " + used;
  if (stage == 2) return stored + " => " + used + " => " + text(further);
  return stored + " => " + used + " => " + stored + " => " + text(further);
}

// "blocks.3.norm.weight" -> "blocks.*.norm.weight".
std::string group_of(const std::string& name) {
  std::string out;
  for (size_t at = 0; at <= name.size();) {
    size_t end = std::min(name.find('.', at), name.size());
    std::string part = name.substr(at, end - at);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "*";
    if (!out.empty()) out += '.';
    out += part;
    at = end + 1;
  }
  return out;
}

using Lines = std::vector<std::pair<std::string, std::string>>;

// One line for each group whose members agree, in the order of the model; a line each for the others.
Lines grouped(const Lines& entries) {
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> mixed;
  for (const auto& [name, text] : entries) {
    auto [known, fresh] = texts.emplace(group_of(name), text);
    mixed[known->first] |= !fresh && known->second != text;
  }
  Lines out;
  for (const auto& [name, text] : entries) {
    std::string group = group_of(name);
    std::pair<std::string, std::string> line(mixed[group] ? name : group, text);
    if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(std::move(line));
  }
  return out;
}

}  // namespace

ShardingPlan zero(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan,
                  const ZeroOptions& options) {
  if (options.stage < 1 || options.stage > 3)
    throw ValueError("[zero] stage is " + std::to_string(options.stage) + "; it must be 1, 2 or 3");
  std::vector<int> axes;
  for (const std::string& name : options.axes) axes.push_back(mesh.state()->axis(name));
  Lines entries;
  for (const auto& [state, stored] : detail::resolve_parameters(model, mesh, plan)) {
    if (state->trained) {
      const LayoutData* further = split_further(state->path, state->shape, stored.storage, axes);
      bool small = options.stage == 3 && numel(state->shape) < options.whole_below;
      entries.emplace_back(state->path, entry(stored, further, small ? 2 : options.stage));
    } else if (stored.storage->split()) {
      entries.emplace_back(state->path, to_string(dist::Layout(stored.storage)));
    }
  }
  return {grouped(entries), plan.forward};
}

}  // namespace cleave::nn
