// Which layouts a plan gives to the parameters and buffers of a model.
#include <cleave/core/error.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/internal/resolve_plan.h>
#include <cleave/nn/zero.h>

#include <algorithm>

namespace cleave::nn::detail {

namespace {

struct Target {
  std::vector<std::string> names;  // more than one: tied
  std::shared_ptr<ParameterState> state;
};

std::vector<Target> list_targets(const ModuleBase& model) {
  std::vector<Target> out;
  auto add = [&](const std::string& name, const std::shared_ptr<ParameterState>& state) {
    auto known = std::find_if(out.begin(), out.end(), [&](const Target& t) { return t.state == state; });
    if (known == out.end())
      out.push_back({{name}, state});
    else
      known->names.push_back(name);
  };
  for (auto& [name, p] : model.named_parameters()) add(name, p.state());
  for (auto& [name, p] : model.named_parameters_with_ties())
    for (Target& t : out)
      if (t.state == p.state() && t.names.front() != name) t.names.push_back(name);
  for (auto& [name, b] : model.named_buffers()) add(name, b.state());
  return out;
}

std::vector<std::string> split_arrows(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0;;) {
    size_t arrow = text.find("=>", from);
    parts.push_back(text.substr(from, arrow == std::string::npos ? arrow : arrow - from));
    if (arrow == std::string::npos) return parts;
    from = arrow + 2;
  }
}

// "storage", "storage => use", "... => gradient" or "... => state" for a tensor of this many dims.
StoragePlan read_storage(const std::string& text, int rank, dist::DeviceMesh mesh) {
  std::vector<std::string> parts = split_arrows(text);
  if (parts.size() > 4)
    throw PlanError("it has " + std::to_string(parts.size()) +
                    " layouts; at most \"stored => used => gradient => state\" are known");
  const dist::LayoutData* layouts[4] = {};
  for (size_t i = 0; i < parts.size(); ++i) {
    layouts[i] = mesh.layout(parts[i]).resolve(rank).data();
    if (layouts[i]->partial) throw LayoutError("a parameter, its use, its gradient and its state must not be partial");
  }
  auto own = [&](int i) { return layouts[i] == layouts[0] ? nullptr : layouts[i]; };
  return {layouts[0], own(1), own(2), layouts[3]};
}

StoragePlan read_storage(const std::string& key, const std::string& text, const Target& target, dist::DeviceMesh mesh) {
  std::string where = "plan, \"" + key + "\" = \"" + text + "\", for " + target.names.front() + " " +
                      to_string(TensorType{target.state->dtype, target.state->shape, nullptr}) + ": ";
  try {
    return read_storage(text, target.state->shape.rank(), mesh);
  } catch (const LayoutError& e) { throw LayoutError(where + e.what()); } catch (const PlanError& e) {
    throw PlanError(where + e.what());
  }
}

bool covers(const std::string& key, const Target& target) {
  return std::any_of(target.names.begin(), target.names.end(), [&](const std::string& n) { return matches(key, n); });
}

void require_used(const ShardingPlan& plan, const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& t : targets) names.insert(names.end(), t.names.begin(), t.names.end());
  for (const auto& [key, text] : plan.parameter)
    if (std::none_of(targets.begin(), targets.end(), [&](const Target& t) { return covers(key, t); }))
      throw PlanError("plan, \"" + key + "\" = \"" + text + "\": the model has no such parameter or buffer" +
                      nearest(key, names));
}

StoragePlan choose(const ShardingPlan& plan, const Target& target, dist::DeviceMesh mesh) {
  const std::string* chosen = nullptr;
  StoragePlan out{mesh.replicated(target.state->shape.rank()).data()};
  bool written_out = false;
  for (bool patterns : {false, true}) {
    for (const auto& [key, text] : plan.parameter) {
      if (is_pattern(key) != patterns || !covers(key, target)) continue;
      StoragePlan read = read_storage(key, text, target, mesh);
      if (chosen && !(read == out))
        throw PlanError("plan: \"" + *chosen + "\" and \"" + key + "\" give " + target.names.front() +
                        " different layouts; name it exactly, or make the two agree");
      out = read;
      chosen = &key;
      written_out = text.find("=>") != std::string::npos;
    }
    if (chosen) break;  // exact names beat patterns
  }
  return written_out || !target.state->trained ? out : zero_storage(plan.zero, target.state->shape, out.storage);
}

}  // namespace

std::vector<PlacedState> resolve_parameters(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan) {
  std::vector<Target> targets = list_targets(model);
  require_used(plan, targets);
  check_zero(plan.zero, mesh);
  std::vector<PlacedState> out;
  for (const Target& t : targets) out.push_back({t.state, choose(plan, t, mesh)});
  return out;
}

}  // namespace cleave::nn::detail
