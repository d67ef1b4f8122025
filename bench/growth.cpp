// What propagation and planning cost, and how that grows with the mesh: simulated meshes, nothing is computed.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/activation.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>

#include <random>

#include "measure.h"

using namespace cleave;

namespace {

// The feed-forward half of a transformer block, tensor and sequence parallel; without or with its two redistributions.
class Block {
 public:
  Block(dist::DeviceMesh mesh, bool moves) : mesh_(mesh), moves_(moves) {
    up_ = meta({4096, 1024}, "tp, -"), down_ = meta({1024, 4096}, "-, tp");
    scale_ = meta({1024}, "-"), shift_ = meta({1024}, "-");
  }
  int ops() const { return moves_ ? 7 : 5; }
  struct Inputs {
    Tensor residual, whole;
  };
  Inputs inputs(int64_t tokens) const {
    return {meta({64, tokens, 1024}, "dp, tp, -"), meta({64, tokens, 1024}, "dp, -, -")};
  }
  void operator()(const Inputs& x) const {
    Tensor y = layer_norm(x.residual, {1024}, scale_, shift_);
    Tensor whole = moves_ ? dist::redistribute(y, mesh_.layout("dp, -, -")) : x.whole;
    Tensor z = linear(gelu(linear(whole, up_)), down_);
    x.residual + (moves_ ? dist::redistribute(z, mesh_.layout("dp, tp, -")) : y);
  }

 private:
  Tensor meta(const Shape& shape, const char* layout) const {
    return empty(shape, {.device = Device::Meta, .layout = mesh_.layout(layout)});
  }
  dist::DeviceMesh mesh_;
  bool moves_;
  Tensor up_, down_, scale_, shift_;
};

// Warm: the same types again and again. Cold: every call has a shape that was never seen.
void measure_block(const char* name, dist::World& world, const std::vector<dist::MeshAxis>& axes, bool moves) {
  Block block(dist::DeviceMesh(world, axes), moves);
  auto say = [&](const char* state, double seconds, int calls) {
    std::string text = std::string(name).append(" ").append(state);
    bench::report("propagation", text.append(" ") + std::to_string(world.size()), seconds / calls / block.ops() * 1e9,
                  "ns");
  };
  auto x = block.inputs(4096);
  block(x);
  double warm = bench::least(20, [&] {
    for (int i = 0; i < 100; ++i) block(x);
  });
  say("warm", warm, 100);
  int64_t tokens = 4096;
  double cold = bench::least(20, [&] {
    for (int i = 0; i < 10; ++i) block(block.inputs(++tokens));
  });
  say("cold", cold, 10);
}

void measure_propagation(int ranks, const std::vector<dist::MeshAxis>& axes) {
  for (bool moves : {false, true})
    dist::simulate(ranks, 0, [&](dist::World& world) {
      dist::set_checked_mode(false);
      NoGrad off;
      measure_block(moves ? "ops and moves" : "ops", world, axes, moves);
    });
}

// Any layout: for every axis replicated, partial, or the last of a random dim's list.
const dist::LayoutData* random_layout(const dist::MeshState* mesh, std::mt19937& random) {
  dist::LayoutData data;
  data.mesh = mesh;
  data.rank = 4;
  std::vector<int> order{0, 1, 2, 3};
  std::shuffle(order.begin(), order.end(), random);
  for (int axis : order) {
    auto choice = static_cast<int>(random() % 6);
    if (choice < 4) data.dims[static_cast<size_t>(choice)].push_back(axis);
    if (choice == 4) data.partial |= dist::axis_bit(axis);
  }
  return mesh->intern(data);
}

// Each pair is planned cold in several worlds, and counts with its fastest: one plan is too short to be measured once.
void measure_planning() {
  constexpr int kPairs = 1500, kWorlds = 3, kWarm = 200;
  std::vector<double> cold(kPairs, 1e9);
  double warm = 1e9;
  for (int w = 0; w < kWorlds; ++w)
    dist::simulate(1024, 0, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"a", 8}, {"b", 4}, {"c", 4}, {"d", 8}});
      std::mt19937 random(1);
      std::vector<std::pair<TensorType, const dist::LayoutData*>> pairs;
      for (double& seconds : cold) {
        const auto *from = random_layout(mesh.state(), random), *to = random_layout(mesh.state(), random);
        pairs.emplace_back(TensorType{DType::f32, {64, 100, 128, 257}, from}, to);
        const auto& [type, target] = pairs.back();
        seconds = std::min(seconds, bench::least(1, [&] { dist::plan_redistribution(type, target); }));
      }
      pairs.resize(kWarm);
      warm = std::min(warm, bench::least(20, [&] {
                        for (const auto& [type, to] : pairs) dist::plan_redistribution(type, to);
                      }));
    });
  double total = 0;
  for (double seconds : cold) total += seconds;
  bench::report("planning.cold_mean", "rank 4, 4 axes", total / kPairs * 1e3, "ms");
  bench::report("planning.cold_worst", "rank 4, 4 axes", *std::max_element(cold.begin(), cold.end()) * 1e3, "ms");
  bench::report("planning.warm", "rank 4, 4 axes", warm / kWarm * 1e9, "ns");
}

}  // namespace

int main() {
  measure_propagation(8, {{"pp", 2}, {"dp", 2}, {"tp", 2}});
  measure_propagation(1024, {{"pp", 16}, {"dp", 8}, {"tp", 8}});
  measure_planning();
}
