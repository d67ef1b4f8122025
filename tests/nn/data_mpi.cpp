// Loaders of MPI ranks: processes that map the same files give the same global batches.
#include "nn/data_support.h"
#include "support/mpi_world.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("the global batches of MPI ranks are one rank's, also after a resume") {
  dist::World& world = mpi_world();
  TemporaryFolder folder;  // each rank its own, of equal content
  nn::TokenDataset data(write_tokens(folder, "t", 90));
  nn::LoaderOptions options{.batch = 5, .seq = 4, .seed = 3, .drop_last = false, .epochs = 2};
  nn::TokenLoader single(data, options);
  std::vector<Seen> expected = next_batches(single, 100);
  dist::DeviceMesh mesh(world, {{"dp", 2}, {"cp", world.size() / 2}});
  for (const char* layout : {"dp, cp", "dp.cp, -", "-, -"}) {
    CAPTURE(layout);
    options.layout = mesh.layout(layout);
    nn::TokenLoader loader(data, options), resumed(data, options);
    std::vector<Seen> first = next_batches(loader, 3);
    resumed.restore(loader.state());
    std::vector<Seen> rest = next_batches(resumed, 100);
    first.insert(first.end(), rest.begin(), rest.end());
    CHECK(first == expected);
  }
}
