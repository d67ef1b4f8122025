// Which layouts a plan gives to the parameters and buffers of a model.
#include <cleave/core/error.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/internal/resolve_plan.h>

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

// "storage", "storage => use", "storage => use => gradient" or "storage => use => gradient => state" for a tensor of
// this many dims.
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
  auto other = [&](size_t i) { return layouts[i] == layouts[0] ? nullptr : layouts[i]; };
  return {layouts[0], other(1), other(2), other(3)};
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

// Exact names beat patterns, and these what is said of everything.
enum class Strength : uint8_t { exact, pattern, everything };
Strength strength_of(const std::string& key) {
  return !is_pattern(key) ? Strength::exact : key == "**" ? Strength::everything : Strength::pattern;
}

StoragePlan choose(const ShardingPlan& plan, const Target& target, dist::DeviceMesh mesh) {
  const std::string* chosen = nullptr;
  StoragePlan out{mesh.replicated(target.state->shape.rank()).data(), nullptr, nullptr, nullptr};
  for (Strength strength : {Strength::exact, Strength::pattern, Strength::everything}) {
    for (const auto& [key, text] : plan.parameter) {
      if (strength_of(key) != strength || !covers(key, target)) continue;
      StoragePlan read = read_storage(key, text, target, mesh);
      if (chosen && !(read == out))
        throw PlanError("plan: \"" + *chosen + "\" and \"" + key + "\" give " + target.names.front() +
                        " different layouts; name it exactly, or make the two agree");
      out = read;
      chosen = &key;
    }
    if (chosen) break;
  }
  return out;
}

}  // namespace

std::vector<PlacedState> resolve_parameters(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan) {
  std::vector<Target> targets = list_targets(model);
  require_used(plan, targets);
  std::vector<PlacedState> out;
  for (const Target& t : targets) out.push_back({t.state, choose(plan, t, mesh)});
  return out;
}

}  // namespace cleave::nn::detail
