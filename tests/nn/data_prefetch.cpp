// The thread that reads ahead: its errors, its end, and memory that stays with its rank.
#include "nn/data_support.h"

using namespace cleave;
using namespace cleave::test;
using nn::TokenDataset;
using nn::TokenLoader;

namespace {

// Ones, and one token outside the vocabulary where the fingerprint does not look.
TokenDataset with_bad_token(const TemporaryFolder& folder, int64_t at) {
  std::vector<uint32_t> tokens(40000, 1);
  tokens[static_cast<size_t>(at)] = 7;
  nn::TokenFileWriter writer(folder.path("bad"), 8);
  writer.append(tokens);
  writer.commit();
  return TokenDataset(folder.path("bad"), 7);
}

}  // namespace

TEST_CASE("an error of the thread comes at its batch, every time, and the state is that before it") {
  TemporaryFolder folder;
  TokenDataset data = with_bad_token(folder, 100);
  for (int prefetch : {0, 1, 4}) {
    CAPTURE(prefetch);
    TokenLoader loader(data, {.batch = 2, .seq = 10, .shuffle = false, .prefetch = prefetch});
    for (int i = 0; i < 4; ++i) CHECK(loader.next());  // targets up to token 80
    auto before = loader.state();
    for (int i = 0; i < 3; ++i) check_throws<FileError>([&] { loader.next(); }, {"bad", "position 100"});
    CHECK(loader.state() == before);
    CHECK(before.step == 4);
    auto behind = before;
    behind.sample = 11;
    loader.restore(behind);
    CHECK(loader.next()->windows.front() == 110);
  }
}

TEST_CASE("a bad token on one rank's rows ends the other ranks with its message") {
  TemporaryFolder folder;
  TokenDataset data = with_bad_token(folder, 100);
  check_throws<FileError>(
      [&] {
        dist::run_ranks({.ranks = 2}, [&](dist::World& world) {
          dist::DeviceMesh mesh(world, {{"dp", 2}});
          TokenLoader loader(data, {.batch = 2, .seq = 10, .shuffle = false, .layout = mesh.layout("dp, -")});
          for (int i = 0; i < 9; ++i) item<int64_t>(sum(loader.next()->parts[0].ids));
        });
      },
      {"bad", "position 100"});
}

TEST_CASE("loaders can be dropped at any time, moved, and end cleanly") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 200));
  for (int given : {0, 1, 3})
    for (int prefetch : {1, 2, 100}) {
      TokenLoader loader(data, {.batch = 3, .seq = 2, .prefetch = prefetch});
      next_batches(loader, given);
      TokenLoader moved = std::move(loader);
      CHECK(next_batches(moved, 1).at(0).step == given + 1);
      moved = TokenLoader(data, {.batch = 1, .seq = 2, .epochs = 1, .prefetch = prefetch});
      CHECK(moved.next()->step == 1);
    }
  TokenLoader done(data, {.batch = 33, .seq = 2, .epochs = 1});
  CHECK(next_batches(done, 10).size() == 3);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(done.next());
}

TEST_CASE("batches are this rank's memory and are given back to it") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 4000));
  on_ranks({1, 2}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    TokenLoader loader(data, {.batch = 4, .seq = 64, .prefetch = 3, .layout = mesh.layout("dp, -")});
    loader.next();
    int64_t before = memory_stats().active, requests = memory_stats().system_allocations;
    for (int i = 0; i < 50; ++i) {
      auto batch = loader.next();
      CHECK(memory_stats().active == before + 2 * 4 * 64 * 8 / world.size());
    }
    CHECK(memory_stats().active == before);
    CHECK(memory_stats().system_allocations == requests);
  });
}
