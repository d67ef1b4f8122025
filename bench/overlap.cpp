// What overlap of communication with computation gains: on a slow link, with ranks of unequal load, and when balanced.
// Two thread ranks; a few linear layers, under data parallelism ("dp") and with split parameters ("split"). Seconds per
// step, least of several, by case and mode: "split slow link on".
#include <cleave/cleave.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "measure.h"

using namespace cleave;

namespace {

constexpr int64_t kBlocks = 6, kDim = 512, kRows = 256;
constexpr int kSteps = 6, kTries = 3;

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The identity, whose backward takes its time: a rank that has more to do than the other.
const OpDef late_op{
    .name = "late",
    .infer =
        [](const InferCall& c, std::span<OutputType> out) {
          out[0] = {c.in[0]->dtype(), c.in[0]->shape()};
        },
    .layout = [](const RuleCall& c) { return parse_rule("nd->nd", c); },
    .view = [](const View& x, size_t, const Shape&, const Attributes&, View& result) { return result = x, true; },
    .backward =
        [](const BackwardCall& c, std::span<Tensor> gradients) {
          sleep(c.attributes.as<double>());
          gradients[0] = c.grads[0];
        }};

struct Block : nn::Module<Block> {
  nn::Linear up, down;
  Block(nn::ModuleBase* parent, std::string name, int64_t dim)
      : Module(parent, std::move(name)), up(this, "up", dim, 4 * dim), down(this, "down", 4 * dim, dim) {}
  Tensor forward(const Tensor& x) const { return x + down(gelu(up(x))); }
};
struct Net : nn::Module<Net> {
  nn::List<Block> blocks;
  Net(int64_t n, int64_t dim) : blocks(this, "blocks", n, dim) {}
  int64_t late_at = -1;  // before this block
  double late = 0;
  Tensor forward(Tensor x) const {
    for (int64_t i = 0; i < kBlocks; ++i) {
      if (i == late_at) x = apply(late_op, late, x);
      x = blocks[i](x);
    }
    return x;
  }
};

struct Case {
  const char* name;
  bool split = false;  // parameters
  dist::SimulatedLink link{};
  double skew = 0;  // seconds that each rank sleeps in backward: one at the last block, the other at the first
};

double seconds_per_step(const Case& c, dist::Overlap overlap) {
  double least = 1e9;
  dist::run_ranks({.ranks = 2, .checked = 0, .overlap = overlap, .link = c.link}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    auto net = nn::build<Net>({}, kBlocks, kDim);
    nn::ShardingPlan plan{.forward = {{"input", {"dp, -"}}}};
    if (c.split) plan.parameter = {{"**", "dp, ... => ..."}};
    nn::shard(net, mesh, plan);
    optim::SGD opt(net.parameters(), {.lr = 1e-3});
    Tensor x = dist::replicate(randn({kRows, kDim}, {.seed = 1}), mesh);
    net.late = c.skew;
    if (c.skew > 0) net.late_at = world.rank() == 0 ? kBlocks - 1 : 1;
    for (int step = 0; step < kSteps; ++step) {
      world.communicator().barrier();
      double start = bench::now();
      Tensor y = net(x);
      mean(square(y)).backward();
      opt.step();
      opt.zero_grad();
      if (world.rank() == 0 && step > 0) least = std::min(least, bench::now() - start);
    }
  });
  return least;
}

}  // namespace

int main() {
  // 1 ms and 400 MB/s: a gigabyte Ethernet or so between two hosts.
  constexpr dist::SimulatedLink slow{.latency = 1e-3, .bandwidth = 4e8};
  for (const Case& c : {Case{"dp balanced"}, Case{"dp slow link", false, slow}, Case{"split balanced", true},
                        Case{"split slow link", true, slow}, Case{"split skewed", true, {}, 0.1}}) {
    double off = 1e9, on = 1e9;
    for (int i = 0; i < kTries; ++i) {
      off = std::min(off, seconds_per_step(c, dist::Overlap::off));
      on = std::min(on, seconds_per_step(c, dist::Overlap::on));
    }
    bench::report("overlap", c.name + std::string(" off"), off, "s");
    bench::report("overlap", c.name + std::string(" on"), on, "s");
  }
}
