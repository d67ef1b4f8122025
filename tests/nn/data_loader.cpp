// The stream of global batches: which windows, once each, the same on any number of ranks.
#include <algorithm>
#include <set>

#include "nn/data_support.h"

using namespace cleave;
using namespace cleave::test;
using nn::LoaderOptions;
using nn::TokenDataset;
using nn::TokenLoader;

namespace {

struct Case {
  std::vector<dist::MeshAxis> axes;
  const char* layout;
};
const std::vector<Case> kCases = {
    {{{"dp", 1}}, "dp, -"},
    {{{"dp", 2}}, "dp, -"},
    {{{"dp", 3}}, "dp, -"},
    {{{"dp", 4}}, "dp, -"},
    {{{"tp", 2}}, "-, -"},
    {{{"rep", 2}, {"shard", 2}}, "rep.shard, -"},
    {{{"rep", 2}, {"shard", 2}}, "shard.rep, -"},
    {{{"dp", 2}, {"cp", 2}}, "dp, cp"},
    {{{"dp", 1}, {"cp", 3}}, "dp, cp"},
    {{{"dp", 2}, {"tp", 2}}, "dp, -"},
    {{{"dp", 2}, {"tp", 2}}, "dp, ..."},
};

void on(const Case& c, const std::function<void(dist::Layout)>& body) {
  int ranks = 1;
  for (const auto& a : c.axes) ranks *= a.size;
  CAPTURE(c.layout);
  CAPTURE(ranks);
  dist::run_ranks({.ranks = ranks},
                  [&](dist::World& world) { body(dist::DeviceMesh(world, c.axes).layout(c.layout)); });
}

LoaderOptions with_layout(LoaderOptions options, dist::Layout layout) {
  options.layout = layout;
  return options;
}

std::vector<int64_t> consecutive(int64_t first, int64_t count) {
  std::vector<int64_t> v(static_cast<size_t>(count));
  std::iota(v.begin(), v.end(), first);
  return v;
}

}  // namespace

TEST_CASE("unshuffled windows are the data in order; targets are the next tokens") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 14));  // 4 windows of 3 targets, one target left
  TokenLoader loader(data, {.batch = 2, .seq = 3, .shuffle = false, .epochs = 1});
  CHECK(loader.epoch_samples() == 4);
  CHECK(loader.epoch_steps() == 2);
  std::vector<Seen> got = next_batches(loader, 9);
  REQUIRE(got.size() == 2);
  CHECK(got[0].ids == consecutive(0, 6));
  CHECK(got[0].targets == consecutive(1, 6));
  CHECK(got[1].ids == consecutive(6, 6));
  CHECK(got[1].windows == std::vector<int64_t>{6, 9});
  CHECK(got[1].step == 2);
  CHECK(got[1].tokens == 6);
  CHECK_FALSE(loader.next());
}

TEST_CASE("every window comes once an epoch, in another order each, and without drop_last every token is a target") {
  TemporaryFolder folder;
  for (int64_t size : {2, 3, 4, 5, 12, 13, 14, 38}) {
    CAPTURE(size);
    TokenDataset data(write_tokens(folder, "t", size));
    TokenLoader loader(data, {.batch = 2, .seq = 3, .seed = 5, .drop_last = false, .epochs = 3});
    std::vector<std::vector<int64_t>> orders(3);
    int64_t steps = 0;
    while (auto batch = loader.next()) {
      Seen s = seen(*batch);
      ++steps;
      int64_t valid = 0;
      for (size_t i = 0; i < s.targets.size(); ++i) {
        if (s.targets[i] == -100) {
          CHECK(s.ids[i] == 0);
          continue;
        }
        ++valid;
        CHECK(s.targets[i] == s.ids[i] + 1);
        orders[static_cast<size_t>(s.epoch)].push_back(s.targets[i]);
      }
      CHECK(valid == s.tokens);
    }
    CHECK(steps == 3 * loader.epoch_steps());
    CHECK(loader.epoch_steps() == ((size + 1) / 3 + 1) / 2);
    for (auto order : orders) {
      std::sort(order.begin(), order.end());
      CHECK(order == consecutive(1, size - 1));
    }
    if (size == 38) CHECK(orders[0] != orders[1]);
    if (size == 38) CHECK(orders[1] != orders[2]);
  }
}

TEST_CASE("seeds give other orders; a run without end goes through epoch after epoch") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 31));
  auto first = [&](uint64_t seed) {
    TokenLoader loader(data, {.batch = 4, .seq = 3, .seed = seed});
    return next_batches(loader, 6);
  };
  CHECK(first(1) == first(1));
  CHECK(first(1) != first(2));
  std::vector<Seen> got = first(1);
  REQUIRE(got.size() == 6);  // two batches of ten windows an epoch
  CHECK(got[1].epoch == 0);
  CHECK(got[2].epoch == 1);
  CHECK(got[5].epoch == 2);
}

TEST_CASE("the global batches are the same on 1, 2, 3 and 4 ranks and under every layout") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 60));
  for (const LoaderOptions& options :
       {LoaderOptions{.batch = 5, .seq = 4, .seed = 3, .drop_last = false, .epochs = 2},
        LoaderOptions{.batch = 6, .seq = 7, .seed = 4, .drop_last = true, .epochs = 2, .micro_batches = 4},
        LoaderOptions{.batch = 2, .seq = 1, .seed = 4, .drop_last = false, .epochs = 1, .limit = 5},
        LoaderOptions{.batch = 1, .seq = 6, .shuffle = false, .drop_last = false, .epochs = 1, .prefetch = 0}}) {
    CAPTURE(options.batch);
    TokenLoader single(data, options);
    std::vector<Seen> expected = next_batches(single, 100);
    for (const Case& c : kCases)
      on(c, [&](dist::Layout layout) {
        TokenLoader loader(data, with_layout(options, layout));
        CHECK(next_batches(loader, 100) == expected);
        CHECK(loader.state() == single.state());
      });
  }
}

TEST_CASE("tensors have the layout asked for, and a rank holds and reads its block alone") {
  TemporaryFolder folder;
  TokenDataset whole(write_tokens(folder, "t", 25));
  on({{{"dp", 2}, {"cp", 2}}, "dp, cp"}, [&](dist::Layout layout) {
    TokenLoader loader(whole, {.batch = 3, .seq = 5, .shuffle = false, .layout = layout});
    auto batch = loader.next();
    const nn::MicroBatch& part = batch->parts.at(0);
    CHECK(part.ids.layout() == layout);
    CHECK(part.targets.layout() == layout);
    CHECK(part.ids.shape() == Shape{3, 5});
    CHECK(part.ids.dtype() == DType::i64);
    int64_t d = layout.mesh().coordinate("dp"), c = layout.mesh().coordinate("cp");
    CHECK(part.ids.local().shape() == Shape{2 - d, 3 - c});
    CHECK(to_vector<int64_t>(part.ids.local())[0] == 10 * d + 3 * c);
    CHECK(to_vector<int64_t>(part.targets.local())[0] == 10 * d + 3 * c + 1);
  });
  // Token 78 is in the second row of step 8, on the rank with dp = 1, as an input and as a target.
  std::vector<uint32_t> tokens(20000, 1);
  tokens[78] = 9;
  nn::TokenFileWriter writer(folder.path("bad"), 10);
  writer.append(tokens);
  writer.commit();
  TokenDataset bad(folder.path("bad"), 9);
  on({{{"dp", 2}}, "dp, -"}, [&](dist::Layout layout) {
    TokenLoader loader(bad.range(2, bad.size()), {.batch = 2, .seq = 5, .shuffle = false, .layout = layout});
    for (int step = 1; step < 8; ++step) CHECK(loader.next());
    if (layout.mesh().coordinate("dp") == 0)
      CHECK(loader.next());
    else
      check_throws<FileError>([&] { loader.next(); }, {"bad", "token 9", "position 78"});
  });
}

TEST_CASE("a batch smaller than the mesh leaves ranks with empty blocks and no fewer steps") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 11));
  on({{{"dp", 4}}, "dp, -"}, [&](dist::Layout layout) {
    TokenLoader loader(data,
                       {.batch = 2, .seq = 2, .drop_last = false, .epochs = 1, .micro_batches = 2, .layout = layout});
    int64_t steps = 0, tokens = 0;
    while (auto batch = loader.next()) {
      ++steps;
      tokens += batch->tokens;
      REQUIRE(batch->parts.size() == 2);
      for (const auto& part : batch->parts)
        CHECK(part.ids.local().size(0) == (layout.mesh().coordinate("dp") == 0 ? 1 : 0));
    }
    CHECK(steps == 3);
    CHECK(tokens == 10);
  });
}

TEST_CASE("ranks outside the mesh make the same steps and hold no data") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 11));
  dist::run_ranks({.ranks = 3}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}}, {0, 1});
    TokenLoader loader(data, {.batch = 2, .seq = 2, .shuffle = false, .epochs = 1, .layout = mesh.layout("dp, -")});
    int64_t steps = 0;
    while (auto batch = loader.next()) {
      ++steps;
      CHECK(batch->parts.at(0).ids.shape() == Shape{2, 2});
      if (world.rank() < 2) CHECK(batch->parts[0].ids.local().shape() == Shape{1, 2});
    }
    CHECK(steps == 2);
  });
}

TEST_CASE("micro-batches are the rows of the batch in order, also where they do not divide it") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 43));
  for (bool drop_last : {true, false})
    for (int64_t m : {2, 3, 5}) {
      CAPTURE(m);
      TokenLoader one(data, {.batch = 5, .seq = 3, .seed = 2, .drop_last = drop_last, .epochs = 2});
      TokenLoader several(data,
                          {.batch = 5, .seq = 3, .seed = 2, .drop_last = drop_last, .epochs = 2, .micro_batches = m});
      while (auto batch = one.next()) {
        auto parts = several.next();
        REQUIRE(parts);
        REQUIRE(parts->parts.size() == static_cast<size_t>(m));
        CHECK(seen(*parts) == seen(*batch));
        int64_t row = 0, tokens = 0;
        for (const auto& part : parts->parts) {
          CHECK(part.first_row == row);
          row += part.ids.size(0);
          tokens += part.tokens;
          int64_t valid = 0;
          for (int64_t t : to_vector<int64_t>(part.targets)) valid += t >= 0;
          CHECK(valid == part.tokens);
        }
        CHECK(row == 5);
        CHECK(tokens == batch->tokens);
      }
      CHECK_FALSE(several.next());
    }
}

TEST_CASE("a limited epoch takes windows spread evenly over the data") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 101));
  TokenLoader loader(data, {.batch = 2, .seq = 5, .shuffle = false, .drop_last = false, .epochs = 1, .limit = 3});
  std::vector<Seen> got = next_batches(loader, 9);
  REQUIRE(got.size() == 2);
  CHECK(got[0].windows == std::vector<int64_t>{0, 35});
  CHECK(got[1].windows == std::vector<int64_t>{70, -1});
  CHECK(got[1].tokens == 5);
}

TEST_CASE("a row of a batch is named by its file and token") {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("d"));
  write_tokens(folder, "d/a", 7);
  write_tokens(folder, "d/b", 6);
  TokenDataset data(folder.path("d"));
  TokenLoader loader(data, {.batch = 2, .seq = 4, .shuffle = false, .drop_last = false});
  auto first = loader.next(), second = loader.next();
  CHECK(loader.origin(*first, 1) == "epoch 0, step 1, row 1: " + folder.path("d/a") + ", token 4");
  CHECK(loader.origin(*second, 0) == "epoch 0, step 2, row 0: " + folder.path("d/b") + ", token 1");
  CHECK(loader.origin(*second, 1) == "epoch 0, step 2, row 1: padding");
  CHECK_THROWS_AS(loader.origin(*second, 2), ValueError);
}

TEST_CASE("options and data that give no batch are errors, alike on all ranks") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 7));
  auto refused = [&](const LoaderOptions& options, std::initializer_list<const char*> words) {
    check_throws<ValueError>([&] { TokenLoader(data, options); }, words);
  };
  refused({.batch = 0}, {"batch is 0"});
  refused({.seq = 0}, {"seq is 0"});
  refused({.epochs = -1}, {"epochs"});
  refused({.limit = -1}, {"limit"});
  refused({.batch = 2, .micro_batches = 3}, {"micro_batches is 3"});
  refused({.prefetch = -1}, {"prefetch"});
  refused({.seq = 7}, {"7 tokens", "0 windows of 7"});
  refused({.batch = 3, .seq = 3}, {"2 windows", "batch of 3", "drop_last"});
  CHECK_NOTHROW(TokenLoader(data, {.batch = 3, .seq = 3, .drop_last = false}));
  CHECK_NOTHROW(TokenLoader(data, {.seq = 7, .drop_last = false}));
  CHECK_THROWS_AS(TokenLoader(data.range(0, 1), {.drop_last = false}), ValueError);
  CHECK_THROWS_AS(TokenLoader(data.range(0, 0), {.drop_last = false}), ValueError);
  on({{{"dp", 2}}, "dp, -"}, [&](dist::Layout layout) {
    auto with = [&](const char* text) { return LoaderOptions{.layout = layout.mesh().layout(text)}; };
    CHECK_THROWS_AS(TokenLoader(data, with("dp, -, -")), LayoutError);
    CHECK_THROWS_AS(TokenLoader(data, with("-, - partial(dp)")), LayoutError);
  });
}
