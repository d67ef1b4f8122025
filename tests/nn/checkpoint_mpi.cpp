// Checkpoints of MPI ranks: processes write and read one folder together.
#include "nn/checkpoint_support.h"
#include "support/mpi_world.h"

using namespace cleave;

TEST_CASE("processes write the bytes of one device, read any layout, and fail together") {
  dist::World& world = test::mpi_world();
  namespace fs = std::filesystem;
  fs::path root = fs::temp_directory_path() / ("checkpoint_mpi." + std::to_string(world.size()));
  if (world.rank() == 0) fs::remove_all(root);
  world.communicator().barrier();
  dist::DeviceMesh mesh = test::grid(world);
  Tensor x = test::normal(1, {13, 5}), y = test::normal(2, {3, 2}, DType::f32);
  auto placed = [&](const Tensor& value, const char* layout) {
    return dist::distribute(clone(value), mesh.layout(layout));
  };
  auto content = [&](const char* a, const char* b) {
    return nn::CheckpointContent{.groups = {{"model", {{"x", placed(x, a)}, {"y", placed(y, b)}}}},
                                 .values = {{"step", int64_t{1}}}};
  };
  nn::CheckpointSeries series(root.string(), {.keep = 2});
  series.save(1, content("dp.tp, -", "-, tp"));
  series.save_async(2, content("-, -", "tp, dp"));
  while (!series.poll()) (void)item<double>(sum(placed(x, "tp, -")));
  nn::FoundCheckpoint found = nn::find_latest(root.string(), true);
  CHECK(found.step == 2);
  for (int64_t step : {1, 2}) {
    nn::Checkpoint file(root.string() + "/" + nn::step_folder(step));
    auto read = file.read("model", [&](const std::string& name, const TensorType&) {
      return mesh.layout(name == "x" ? "tp, dp" : "-, dp.tp");
    });
    CHECK(equal(dist::full_tensor(read[0].second), x));
    CHECK(equal(dist::full_tensor(read[1].second), y));
  }
  auto bytes = [&](int64_t step) {
    std::ifstream in(root / nn::step_folder(step) / "manifest.json");
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  CHECK(bytes(1) == bytes(2));
  world.communicator().barrier();
  if (world.rank() == world.size() - 1) fs::resize_file(root / "step-00000002/model.safetensors", 100);
  world.communicator().barrier();
  std::string said = test::message_of<FileError>([&] { nn::Checkpoint(root.string() + "/step-00000002"); });
  CHECK(said.find("model.safetensors") != std::string::npos);
  CHECK(nn::find_latest(root.string()).step == 1);
  world.communicator().barrier();
  if (world.rank() == 0) fs::remove_all(root);
}
