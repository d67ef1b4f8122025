// Which mesh and which plan a run is split by.
#pragma once
#include <cleave/dist/mesh.h>
#include <cleave/nn/plan.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/config.h"

namespace gpt {

/// "dp=2,tp=4". Throws ValueError for other text.
std::vector<cleave::dist::MeshAxis> parse_mesh(const std::string& text);

/// single, dp, tp, tp_sp, dp_tp, dp_tp_sp; zero1, zero2, zero3, hsdp, and with tp: zero1_tp, ..., zero3_tp_sp.
const std::vector<std::string>& ready_plans();

/// A ready plan for a model of these sizes: `dp` splits the batch over the axis dp; `tp` the heads, the feed-forward
/// part and the vocabulary over tp (keys and values only if their heads divide evenly; else every rank has them all);
/// `sp` what lies between by sequence over tp; `zero1` to `zero3` the optimizer's state, gradients and parameters over
/// the axis that splits the batch, dp, or shard if the mesh has one (with rep beside it, which `hsdp` asks for). Throws
/// ValueError for another name, saying which there are, and for a plan whose axes the mesh lacks.
cleave::nn::ShardingPlan ready_plan(const std::string& name, const Config& config, cleave::dist::DeviceMesh mesh);

/// How a run is placed. Without a mesh it is plain, on one rank.
struct Placement {
  std::optional<cleave::dist::DeviceMesh> mesh;
  std::string name = "single";  ///< of the plan, or its file
  cleave::nn::ShardingPlan plan = {};
};
/// Reads --mesh and --plan, either of which may be left out (""): then the axes name the plan, the plan the mesh, and
/// neither means dp over all ranks. A plan is a ready one or a TOML file. Throws ValueError, FileError, PlanError, and
/// LayoutError if the mesh has other ranks than the world.
Placement place(cleave::dist::World& world, const Config& config, const std::string& mesh, const std::string& plan);

}  // namespace gpt
