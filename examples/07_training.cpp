// A run that is kept up for weeks: ZeRO, micro-batches, recomputation, and checkpoints that go on under any other plan.
#include <cleave/cleave.h>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
using namespace cleave;

constexpr int64_t kVocab = 31, kSeq = 12;

struct Block : nn::Module<Block> {
  nn::RMSNorm norm{this, "norm", 24};
  nn::Linear up{this, "up", 24, 50}, down{this, "down", 50, 24};
  Block(nn::ModuleBase* parent, std::string name) : Module(parent, name) {}
  Tensor forward(const Tensor& x) const { return x + down(gelu(up(norm(x)))); }
};

struct Model : nn::Module<Model> {
  nn::Embedding token{this, "token", kVocab, 24};
  nn::List<Block> blocks{this, "blocks", 3};
  nn::Linear head{this, "head", 24, kVocab, {.bias = false}};
  Tensor forward(const Tensor& ids, const Tensor& targets) const {
    Tensor x = token(ids);
    for (const Block& block : blocks) x = block(x);
    return linear_cross_entropy(x, head.weight, targets, {.reduction = "sum", .chunk = 8});
  }
};

// Trains from the newest checkpoint of `folder` (or the start) to step `last`; the loss of the last step.
double train(dist::World& world, const std::string& folder, const nn::TokenDataset& data, int stage, int64_t last) {
  dist::DeviceMesh mesh(world, {{"dp", world.size()}});
  seed(7);
  auto model = nn::build<Model>({.dtype = DType::f64, .deferred = true});
  nn::ShardingPlan plan{.forward = {{"input", {"dp, -", "dp, -"}}}};
  nn::shard(model, mesh, stage ? nn::zero(model, mesh, plan, {.stage = stage}) : plan);
  nn::set_full_recompute(model);

  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  nn::TokenLoader loader(data, {.batch = 6, .seq = kSeq, .seed = 1, .micro_batches = 2, .layout = mesh.layout("dp, -")});
  nn::CheckpointSeries series(folder);
  if (auto found = nn::find_latest(folder); found.step >= 0) {
    nn::Checkpoint file(found.folder);  // written under another plan: every rank reads its own blocks
    auto state = file.read("optimizer", optim::state_layouts(opt.parameters()));
    file.load(model);
    opt.load_state(state);
    loader.restore(nn::read_loader_state(file.text("data")));
    set_rng_state(file.text("random"));
  }

  double loss = 0;
  while (loader.state().step < last) {
    auto batch = loader.next();
    loss = 0;
    for (const nn::MicroBatch& part : batch->parts) {
      Tensor share = model(part.ids, part.targets) / static_cast<double>(batch->tokens);
      share.backward({.sync = false});  // terms stay on their ranks
      loss += item<double>(share);
    }
    optim::clip_grad_norm(model.parameters(), 1.0);  // reduces them, once
    opt.step();
    opt.zero_grad();
    series.poll();
  }
  series.save_async(last, {.groups = {{.name = "model", .tensors = nn::named_tensors(model)},
                                      {.name = "optimizer", .tensors = opt.state()}},
                           .values = {{"data", nn::to_string(loader.state())}, {"random", rng_state()}}});
  series.wait();
  return loss;
}

int main(int argc, char** argv) {
  return dist::launch(argc, argv, [](dist::World& world) {
    std::string name = "cleave_example_07." + std::to_string(world.size()) + world.backend();
    auto folder = std::filesystem::temp_directory_path() / name;
    if (world.rank() == 0) {
      std::filesystem::remove_all(folder);
      std::filesystem::create_directory(folder);
      std::vector<uint32_t> tokens(700);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * i / 3 % kVocab);
      nn::TokenFileWriter writer(folder / "tokens.bin", kVocab);
      writer.append(tokens);
      writer.commit();
    }
    world.communicator().barrier();
    nn::TokenDataset data(folder / "tokens.bin");

    double whole = train(world, folder / "whole", data, 0, 8);
    train(world, folder / "parts", data, 3, 3);
    train(world, folder / "parts", data, 1, 5);
    double parts = train(world, folder / "parts", data, 2, 8);
    check(std::abs(whole - parts) < 1e-9 * whole);

    world.communicator().barrier();
    if (world.rank() == 0) {
      std::filesystem::remove_all(folder);
      std::puts("ok");
    }
  });
}
