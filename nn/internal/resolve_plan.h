// A plan read against a model: every parameter's layouts and every module's ports, or an error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <cleave/nn/parameter.h>
#include <cleave/nn/plan.h>

namespace cleave::nn::detail {

/// Resolved layouts of one parameter or buffer; null: as stored, of `state` also as the gradient if that is split
/// further.
struct StoragePlan {
  const dist::LayoutData* storage = nullptr;
  const dist::LayoutData* use = nullptr;
  const dist::LayoutData* gradient = nullptr;
  const dist::LayoutData* state = nullptr;
  friend bool operator==(const StoragePlan&, const StoragePlan&) = default;
};
struct PlacedState {
  std::shared_ptr<ParameterState> state;
  StoragePlan plan;
};
std::vector<PlacedState> resolve_parameters(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan);

struct PlacedModule {
  ModuleBase* module;
  PortLayouts inputs, outputs;
};
std::vector<PlacedModule> resolve_ports(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan);

}  // namespace cleave::nn::detail
