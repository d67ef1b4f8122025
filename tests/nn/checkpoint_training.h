// A small training under any plan, whose whole state goes into a checkpoint.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "nn/checkpoint_support.h"

namespace cleave::test {

enum Plan { plain, tp, zero3, tp_zero3 };
constexpr Plan kPlans[] = {plain, tp, zero3, tp_zero3};

inline nn::ShardingPlan plan_of(Plan plan) {
  if (plan == tp)
    return {.parameter = {{"embed.weight", "tp, -"},
                          {"up.weight", "tp, -"},
                          {"up.bias", "tp"},
                          {"down.weight", "-, tp"},
                          {"small", "-, tp"}}};
  if (plan == zero3)
    return {.parameter = {{"*.weight", "dp, - => -, -"}, {"*.bias", "dp => -"}, {"small", "dp, - => -, -"}}};
  return {.parameter = {{"embed.weight", "tp.dp, - => tp, -"},
                        {"up.weight", "tp, dp => tp, -"},
                        {"up.bias", "tp.dp => tp"},
                        {"down.weight", "dp, tp => -, tp"},
                        {"down.bias", "dp => -"},
                        {"small", "dp.tp, - => -, -"}}};
}

// Under zero3 alone all ranks are data ranks.
inline dist::DeviceMesh mesh_of(dist::World& world, Plan plan) {
  int n = world.size(), tp_size = plan == tp ? n : plan == tp_zero3 && n % 2 == 0 ? 2 : 1;
  return dist::DeviceMesh(world, {{"dp", n / tp_size}, {"tp", tp_size}});
}

struct Training {
  std::optional<dist::DeviceMesh> mesh;
  Model model = nn::build<Model>({.dtype = DType::f64, .deferred = true});
  optim::AdamW optimizer{model.parameters(), {.lr = 0.1}};

  Training(dist::World& world, Plan plan, uint64_t number) {
    for (auto& p : model.parameters()) p.reset(nn::init::normal(0, static_cast<double>(number)));
    if (plan == plain) {
      nn::materialize(model);
      return;
    }
    mesh = mesh_of(world, plan);
    nn::shard(model, *mesh, plan_of(plan));
  }
  void step() {
    Tensor ids = tensor<int64_t>({0, 12, 5, 7}, {4});
    if (mesh) ids = dist::replicate(ids, *mesh);
    Tensor y = model(ids);
    mean(mul(y, y)).backward();
    optimizer.step();
    optimizer.zero_grad();
    NoGrad off;
    add_(model.count.tensor(), model.count.tensor());
  }
  nn::CheckpointContent content() const {
    return {.groups = {{"model", nn::named_tensors(model)}, {"optimizer", optimizer.state()}},
            .values = {{"step", int64_t{2}}, {"lr", 0.1}, {"random", std::string("seed 3 call 9")}}};
  }
};

// A state that one device has reached: what every mesh is given, so that all have the same bits.
inline void save_first(const std::string& path) {
  dist::run_ranks({.ranks = 1}, [&](dist::World& world) {
    seed(3);
    Training one(world, plain, 1);
    fill_(one.model.count.tensor(), 5);
    one.step();
    one.step();
    nn::save_checkpoint(path, one.content());
  });
}

inline void load(Training& t, const std::string& path) {
  nn::Checkpoint file(path);
  std::map<std::string, dist::Layout> layouts;
  if (t.mesh)
    for (auto& [name, p] : t.model.named_parameters()) layouts[name] = p.layout();
  auto state = file.read("optimizer", [&](const std::string& name, const TensorType& type) {
    return type.shape.empty() ? dist::Layout() : layouts[name.substr(0, name.rfind('.'))];
  });
  file.load(t.model);
  t.optimizer.load_state(state);
}

}  // namespace cleave::test
