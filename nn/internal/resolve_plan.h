// A plan read against a model: every parameter's layouts and every module's ports, or an error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <cleave/nn/parameter.h>
#include <cleave/nn/plan.h>

namespace cleave::nn::detail {

/// Resolved layouts of one parameter or buffer; `use` and `gradient` null: as stored; `state` null: as the gradient if
/// that is split further, else as stored.
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
/// The layouts of a parameter that the plan stores as `layout`, under its ZeRO stage.
StoragePlan zero_storage(const Zero& zero, const Shape& shape, const dist::LayoutData* layout);
std::vector<PlacedState> resolve_parameters(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan);

struct PlacedModule {
  ModuleBase* module;
  PortLayouts inputs, outputs;
};
std::vector<PlacedModule> resolve_ports(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan);

}  // namespace cleave::nn::detail
