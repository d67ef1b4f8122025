#include "gpt/plans.h"

#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/core/text.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/nn/zero.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpt/model.h"

namespace gpt {

namespace dist = cleave::dist;
namespace nn = cleave::nn;
using cleave::ValueError;

namespace {

bool has(const std::string& name, const std::string& part) {
  for (size_t at = 0; at <= name.size();) {
    size_t end = std::min(name.find('_', at), name.size());
    if (name.substr(at, end - at) == part) return true;
    at = end + 1;
  }
  return false;
}

bool is_ready(const std::string& name) {
  const auto& all = ready_plans();
  return std::find(all.begin(), all.end(), name) != all.end();
}

[[noreturn]] void unknown_plan(const std::string& name) {
  auto names = ready_plans();
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return cleave::edit_distance(name, a) < cleave::edit_distance(name, b);
  });
  throw ValueError(fmt::format("--plan: '{}' is neither a file nor a ready plan; the nearest ready ones are {}", name,
                               fmt::join(names, ", ")));
}

// 1 to 3 as a part of the name says; 0: none.
int zero_stage(const std::string& name) {
  for (int stage : {1, 2, 3})
    if (has(name, "zero" + std::to_string(stage))) return stage;
  return has(name, "hsdp") ? 3 : 0;
}

bool has_axis(dist::DeviceMesh mesh, const std::string& axis) {
  for (int a = 0; a < mesh.axes(); ++a)
    if (mesh.name(a) == axis) return true;
  return false;
}

// The mesh over all ranks that a ready plan without a mesh means.
std::vector<dist::MeshAxis> axes_for(const std::string& plan, int ranks) {
  bool dp = has(plan, "dp") || zero_stage(plan) > 0, tp = has(plan, "tp");
  if (has(plan, "hsdp"))
    throw ValueError(
        fmt::format("--plan {} needs a mesh, for example --mesh rep=2,shard={}", plan, std::max(1, ranks / 2)));
  if (dp == tp)
    throw ValueError(
        fmt::format("--plan {} needs a mesh, for example --mesh dp=2,tp={}", plan, std::max(1, ranks / 2)));
  return {{dp ? "dp" : "tp", ranks}};
}

std::string plan_for(dist::DeviceMesh mesh) {
  bool dp = false, tp = false;
  for (int a = 0; a < mesh.axes(); ++a) {
    dp |= mesh.name(a) == "dp";
    tp |= mesh.name(a) == "tp";
  }
  if (!dp && !tp)
    throw ValueError(fmt::format("{} has no axis dp or tp; say how to use it with --plan", to_string(mesh)));
  return dp && tp ? "dp_tp" : dp ? "dp" : "tp";
}

void require_axis(const std::string& plan, const std::string& axis, dist::DeviceMesh mesh) {
  if (has_axis(mesh, axis)) return;
  throw ValueError(fmt::format("--plan {} splits over the axis {}, which {} lacks", plan, axis, to_string(mesh)));
}

}  // namespace

std::vector<dist::MeshAxis> parse_mesh(const std::string& text) {
  std::vector<dist::MeshAxis> axes;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find(',', at), text.size()), equal = text.find('=', at);
    int size = 0;
    if (equal < end) {
      const char* last = text.data() + end;
      auto [stop, error] = std::from_chars(text.data() + equal + 1, last, size);
      if (error != std::errc{} || stop != last) size = 0;
    }
    if (size < 1)
      throw ValueError(fmt::format("--mesh is '{}'; write axes with sizes from 1, for example dp=2,tp=4", text));
    axes.push_back({text.substr(at, equal - at), size});
    at = end + 1;
  }
  return axes;
}

const std::vector<std::string>& ready_plans() {
  static const std::vector<std::string> names = {"single",   "dp",       "tp",       "tp_sp",      "dp_tp",
                                                 "dp_tp_sp", "zero1",    "zero2",    "zero3",      "hsdp",
                                                 "zero1_tp", "zero2_tp", "zero3_tp", "zero3_tp_sp"};
  return names;
}

namespace {

// The axes that split the batch, and those of them that ZeRO splits over: dp; or shard, perhaps beside rep.
struct DataAxes {
  std::string batch = "-";
  std::vector<std::string> zero = {};
};
DataAxes data_axes(const std::string& name, dist::DeviceMesh mesh) {
  if (has(name, "hsdp")) {
    require_axis(name, "rep", mesh);
    require_axis(name, "shard", mesh);
    return {"rep.shard", {"shard"}};
  }
  if (has(name, "dp")) require_axis(name, "dp", mesh);
  if (has(name, "dp")) return {"dp"};
  if (!zero_stage(name)) return {};
  if (has_axis(mesh, "shard")) return {has_axis(mesh, "rep") ? "rep.shard" : "shard", {"shard"}};
  require_axis(name, "dp", mesh);
  return {"dp", {"dp"}};
}

nn::ShardingPlan with_zero(const std::string& name, const Config& config, dist::DeviceMesh mesh,
                           const nn::ShardingPlan& plan, const std::vector<std::string>& axes) {
  auto before = cleave::detail::random_state();  // a model that is only looked at draws no numbers
  Gpt model = nn::build<Gpt>({.device = cleave::Device::Meta, .deferred = true}, config);
  cleave::detail::set_random_state(before);
  return nn::zero(model, mesh, plan, {.stage = zero_stage(name), .axes = axes});
}

nn::ShardingPlan plan_without_zero(const std::string& name, const Config& config, dist::DeviceMesh mesh,
                                   const std::string& batch) {
  bool tp = has(name, "tp"), sp = has(name, "sp");
  nn::ShardingPlan plan;
  plan.forward = {{"input", {batch + ", -"}}};
  if (!tp) return plan;
  require_axis(name, "tp", mesh);

  // Each rank has some heads, some of the feed-forward units, some tokens of the vocabulary.
  plan.parameter = {{"token.weight", "tp, -"},
                    {"blocks.*.attention.out.weight", "-, tp, -"},
                    {"blocks.*.mlp.up.weight", "tp, -"},
                    {"blocks.*.mlp.up.bias", "tp"},
                    {"blocks.*.mlp.down.weight", "-, tp"}};
  auto also = [&](const char* parameter, const char* layout) { plan.parameter.emplace_back(parameter, layout); };
  if (!config.tied) also("head.weight", "tp, -");
  if (config.heads == config.kv_heads) {
    also("blocks.*.attention.qkv.weight", "-, tp, -, -");
    also("blocks.*.attention.qkv.bias", "-, tp, -");
  } else {
    also("blocks.*.attention.q.weight", "tp, -, -");
    also("blocks.*.attention.q.bias", "tp, -");
    if (config.kv_heads % mesh.size("tp") == 0) {
      also("blocks.*.attention.kv.weight", "-, tp, -, -");
      also("blocks.*.attention.kv.bias", "-, tp, -");
    }
  }

  // Sums are completed as whole activations, or each rank its part of the sequence, gathered again behind the norms.
  std::string whole = batch + ", -, -", between = batch + (sp ? ", tp, -" : ", -, -");
  plan.forward.push_back({"token.output", {between}});
  for (const char* part : {"blocks.*.attention", "blocks.*.mlp"}) {
    if (sp) plan.forward.push_back({std::string(part) + ".input", {whole}});
    plan.forward.push_back({std::string(part) + ".output", {between}});
  }
  if (sp) plan.forward.push_back({"head.input", {whole}});
  return plan;
}

}  // namespace

nn::ShardingPlan ready_plan(const std::string& name, const Config& config, dist::DeviceMesh mesh) {
  if (!is_ready(name)) unknown_plan(name);
  DataAxes data = data_axes(name, mesh);
  nn::ShardingPlan plan = plan_without_zero(name, config, mesh, data.batch);
  return data.zero.empty() ? plan : with_zero(name, config, mesh, plan, data.zero);
}

Placement place(dist::World& world, const Config& config, const std::string& mesh, const std::string& plan) {
  bool file = !plan.empty() && !is_ready(plan);
  if (file && !std::filesystem::is_regular_file(plan)) unknown_plan(plan);
  if (plan == "single" && world.size() != 1)
    throw ValueError(fmt::format("--plan single is for one rank, and there are {}", world.size()));
  if (mesh.empty() && (plan == "single" || (plan.empty() && world.size() == 1))) return {};
  if (mesh.empty() && file)
    throw ValueError(fmt::format("--plan {} needs a mesh, for example --mesh tp={}", plan, world.size()));

  auto axes = mesh.empty() ? axes_for(plan.empty() ? "dp" : plan, world.size()) : parse_mesh(mesh);
  dist::DeviceMesh grid(world, axes);
  if (file) return {grid, plan, nn::ShardingPlan::load(plan)};
  std::string name = plan.empty() ? plan_for(grid) : plan;
  return {grid, name, ready_plan(name, config, grid)};
}

}  // namespace gpt
