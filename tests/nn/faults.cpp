// One rank that does something else than the others: an error on all that names it, and no hang.
#include "nn/support.h"

using namespace cleave;

namespace {

struct Mlp : nn::Module<Mlp> {
  nn::Linear up{this, "up", 6, 8}, down{this, "down", 8, 6};
  Mlp(nn::ModuleBase* parent, std::string name) : Module(parent, std::move(name)) {}
  Tensor forward(const Tensor& x) const { return x + down(gelu(up(x))); }
};

struct Stack : nn::Module<Stack> {
  nn::List<Mlp> layers{this, "layers", 3};
  int skipped = -1;
  Tensor forward(Tensor x) const {
    for (int64_t i = 0; i < layers.size(); ++i)
      if (i != skipped) x = layers[i](x);
    return x;
  }
};

}  // namespace

TEST_CASE("a layer that one rank leaves out ends the others with an error that names the rank and the call") {
  for (int skipped : {0, 1, 2}) {
    CAPTURE(skipped);
    std::string said;  // on rank 0, whose call finds no other
    CHECK_THROWS_AS(
        dist::run_ranks(
            {.ranks = 2},
            [&](dist::World& world) {
              dist::DeviceMesh mesh(world, {{"tp", 2}});
              Stack model;
              model.skipped = world.rank() == 1 ? skipped : -1;
              nn::shard(model, mesh,
                        {.parameter = {{"**.up.weight", "tp, -"}, {"**.up.bias", "tp"}, {"**.down.weight", "-, tp"}},
                         .forward = {{"layers.*.output", {"-, -"}}}});
              Tensor x = dist::replicate(test::normal(1, {4, 6}, DType::f32), mesh);
              try {
                sum(model(x)).backward();
              } catch (const CommError& e) {
                if (world.rank() == 0) said = e.what();
                throw;
              }
            }),
        CommError);
    CAPTURE(said);
    CHECK(said.find("all_reduce") != std::string::npos);
    CHECK(said.find("rank 1") != std::string::npos);
  }
}
