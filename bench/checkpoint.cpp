// Saving and loading a checkpoint of 1 GB: beside the same bytes through one write and fsync, and through one read.
//   bench_checkpoint [--ranks 2]
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>
#include <cleave/nn/checkpoint.h>
#include <cleave/ops/creation.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "measure.h"

using namespace cleave;

namespace {

constexpr int64_t kTensors = 32, kRows = 2048, kColumns = 4096;
constexpr int64_t kBytes = kTensors * kRows * kColumns * 4;

std::string folder() {
  const char* base = std::getenv("BENCH_FOLDER");
  return std::string(base ? base : "/tmp") + "/bench_checkpoint." + std::to_string(getuid());
}

void check(bool done) {
  if (!done) throw std::runtime_error("no room in " + folder() + "; BENCH_FOLDER names another");
}

void plain_file() {
  std::string path = folder() + ".plain";
  std::vector<char> bytes(1 << 26, 3);
  auto save = [&] {
    int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(bytes.size()))
      check(write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    check(fsync(file) == 0 && close(file) == 0);
  };
  auto load = [&] {
    int file = open(path.c_str(), O_RDONLY);
    while (read(file, bytes.data(), bytes.size()) > 0) {}
    close(file);
  };
  bench::report("checkpoint", "plain save", bench::least(2, save) * 1e3, "ms");
  bench::report("checkpoint", "plain load", bench::least(2, load) * 1e3, "ms");
  std::filesystem::remove(path);
}

void run(dist::World& world) {
  if (world.size() == 1) plain_file();
  dist::DeviceMesh mesh(world, {{"dp", world.size()}});
  nn::CheckpointContent content{.groups = {{.name = "model", .tensors = {}}}};
  nn::NamedTensors& tensors = content.groups[0].tensors;
  for (int64_t i = 0; i < kTensors; ++i)
    tensors.emplace_back("w" + std::to_string(i), full({kRows, kColumns}, 0.5, {.layout = mesh.layout("dp, -")}));

  auto report = [&](const char* what, double seconds) {
    if (world.rank() == 0)
      bench::report("checkpoint", std::string(what) + " " + std::to_string(world.size()), seconds * 1e3, "ms");
  };
  auto save = [&](auto&& how) {
    double best = 1e9;
    for (int i = 0; i < 2; ++i) {
      if (world.rank() == 0) std::filesystem::remove_all(folder());
      double start = bench::now();
      double end = how();
      best = std::min(best, end - start);
    }
    return best;
  };
  report("pause", save([&] {
           nn::CheckpointSave saving = nn::save_checkpoint_async(folder(), content);
           double copied = bench::now();
           saving.wait();
           return copied;
         }));
  report("save", save([&] {
           nn::save_checkpoint(folder(), content);
           return bench::now();
         }));
  report("load", bench::least(2, [&] { nn::Checkpoint(folder()).load(tensors); }));
  if (world.rank() == 0) std::filesystem::remove_all(folder());
}

}  // namespace

int main(int argc, char** argv) { return dist::launch(argc, argv, run); }
