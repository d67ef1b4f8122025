// A program of a user: a small network, split over all ranks by tensor parallelism, trained; same code on one rank.
#include <cleave/cleave.h>

#include <cstdio>
using namespace cleave;

struct Mlp : nn::Module<Mlp> {
  nn::Linear up{this, "up", 512, 2048}, down{this, "down", 2048, 512};
  Tensor forward(const Tensor& x) const { return down(gelu(up(x))); }
};

int main(int argc, char** argv) {
  return dist::launch(argc, argv, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", world.size()}});
    Mlp model;
    nn::shard(model, mesh,
              {.parameter = {{"up.weight", "tp, -"}, {"up.bias", "tp"}, {"down.weight", "-, tp"}},
               .forward = {{"input", {"-, -"}}, {"output", {"-, -"}}}});
    optim::AdamW opt(model.parameters(), {.lr = 1e-3});
    Tensor x = dist::replicate(randn({16, 512}, {.seed = 1}), mesh);
    double first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
      Tensor loss = mean(square(model(x) - x));
      loss.backward();
      opt.step();
      opt.zero_grad();
      last = item<double>(loss);
      if (step == 0) first = last;
    }
    check(last < 0.2 * first);
    if (world.rank() == 0) std::printf("loss %.4f -> %.4f\nok\n", first, last);
  });
}
