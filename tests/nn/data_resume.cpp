// A loader that goes on from a state gives what the uninterrupted one gives, wherever it runs.
#include "nn/data_support.h"

using namespace cleave;
using namespace cleave::test;
using nn::LoaderOptions;
using nn::LoaderState;
using nn::TokenDataset;
using nn::TokenLoader;

TEST_CASE("resuming at every step equals the uninterrupted run, whatever was read ahead") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 44));
  for (bool drop_last : {true, false})
    for (int prefetch : {0, 1, 3}) {
      LoaderOptions options{.batch = 4, .seq = 3, .seed = 8, .drop_last = drop_last, .epochs = 3, .prefetch = prefetch};
      TokenLoader whole(data, options);
      std::vector<LoaderState> states = {whole.state()};
      std::vector<Seen> expected;
      while (auto batch = whole.next()) {
        expected.push_back(seen(*batch));
        states.push_back(whole.state());
      }
      CHECK(expected.size() == static_cast<size_t>(3 * whole.epoch_steps()));
      TokenLoader used(data, options);
      next_batches(used, 2);
      for (size_t step = 0; step < states.size(); ++step) {
        CAPTURE(step);
        std::vector<Seen> rest(expected.begin() + static_cast<std::ptrdiff_t>(step), expected.end());
        TokenLoader fresh(data, options);
        fresh.restore(nn::read_loader_state(to_string(states[step])));
        CHECK(fresh.state() == states[step]);
        CHECK(next_batches(fresh, 100) == rest);
        used.restore(states[step]);  // also forwards and backwards
        CHECK(next_batches(used, 100) == rest);
        CHECK(used.state() == states.back());
      }
    }
}

TEST_CASE("a run goes on at another number of ranks, another layout and with other micro-batches") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 70));
  LoaderOptions options{.batch = 6, .seq = 4, .seed = 1, .drop_last = false, .epochs = 2};
  TokenLoader whole(data, options);
  std::vector<Seen> expected = next_batches(whole, 100);
  std::string state = to_string(TokenLoader(data, options).state());
  size_t step = 0;
  auto go_on = [&](int ranks, const std::vector<dist::MeshAxis>& axes, const char* layout, int64_t micro_batches) {
    CAPTURE(step);
    std::string next;
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      LoaderOptions here = options;
      here.layout = dist::DeviceMesh(world, axes).layout(layout);
      here.micro_batches = micro_batches;
      TokenLoader loader(data, here);
      loader.restore(nn::read_loader_state(state));
      CHECK(next_batches(loader, 1) == std::vector<Seen>{expected.at(step)});
      if (world.rank() == 0) next = to_string(loader.state());
    });
    state = next;
    ++step;
  };
  go_on(2, {{"dp", 2}}, "dp, -", 1);
  go_on(4, {{"dp", 4}}, "dp, -", 2);
  go_on(3, {{"dp", 3}}, "dp, -", 4);
  go_on(4, {{"rep", 2}, {"shard", 2}}, "rep.shard, -", 1);
  go_on(1, {{"dp", 1}}, "dp, -", 6);
  go_on(4, {{"dp", 2}, {"cp", 2}}, "dp, cp", 1);
  REQUIRE(expected.size() == 6);
}

TEST_CASE("with another batch size the windows go on in the same order, none twice and none left out") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 61));  // 20 windows
  LoaderOptions options{.batch = 4, .seq = 3, .seed = 6, .drop_last = false, .epochs = 1};
  auto windows = [](const std::vector<Seen>& batches) {
    std::vector<int64_t> out;
    for (const Seen& b : batches)
      for (int64_t w : b.windows)
        if (w >= 0) out.push_back(w);
    return out;
  };
  TokenLoader whole(data, options);
  std::vector<int64_t> expected = windows(next_batches(whole, 100));
  REQUIRE(expected.size() == 20);
  TokenLoader begun(data, options);
  std::vector<int64_t> got = windows(next_batches(begun, 2));
  LoaderState state = begun.state();
  for (int64_t batch : {5, 3, 2, 7, 20}) {
    options.batch = batch;
    TokenLoader next(data, options);
    next.restore(state);
    std::vector<int64_t> some = windows(next_batches(next, 1));
    got.insert(got.end(), some.begin(), some.end());
    state = next.state();
  }
  CHECK(got == expected);
  CHECK(state.step == 6);  // the last one had nothing left to give
  CHECK(state.samples == 20);
}

TEST_CASE("with drop_last the rest of an epoch that a larger batch does not fit is dropped") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 31));  // 10 windows
  TokenLoader small(data, {.batch = 4, .seq = 3, .seed = 6});
  next_batches(small, 2);
  TokenLoader large(data, {.batch = 5, .seq = 3, .seed = 6}), fitting(data, {.batch = 2, .seq = 3, .seed = 6});
  large.restore(small.state());
  fitting.restore(small.state());
  CHECK(large.next()->epoch == 1);
  CHECK(large.state().sample == 5);
  CHECK(large.state().samples == 13);
  CHECK(fitting.next()->epoch == 0);
  CHECK(fitting.next()->epoch == 1);
}

TEST_CASE("states of other data, seeds or windows are refused, and change nothing") {
  TemporaryFolder folder;
  TokenDataset data(write_tokens(folder, "t", 44)), other(write_tokens(folder, "u", 44, 1));
  LoaderOptions options{.batch = 4, .seq = 3, .seed = 8};
  TokenLoader loader(data, options);
  next_batches(loader, 3);
  LoaderState state = loader.state();
  auto refused = [&](const TokenDataset& d, const LoaderOptions& o, std::initializer_list<const char*> words) {
    check_throws<ValueError>([&] { loader.restore(TokenLoader(d, o).state()); }, words);
    CHECK(loader.state() == state);
  };
  refused(other, options, {"other data than", "/t"});
  refused(data, {.batch = 4, .seq = 2, .seed = 8}, {"seq", "2", "3"});
  refused(data, {.batch = 4, .seq = 3, .seed = 9}, {"seed", "9", "8"});
  refused(data, {.batch = 4, .seq = 3, .seed = 8, .shuffle = false}, {"shuffle"});
  refused(data, {.batch = 4, .seq = 3, .seed = 8, .drop_last = false}, {"drop_last"});
  refused(data, {.batch = 4, .seq = 3, .seed = 8, .limit = 9}, {"windows", "9", "14"});
  for (auto [member, value] : {std::pair{&LoaderState::sample, int64_t{15}}, {&LoaderState::epoch, int64_t{-1}}}) {
    LoaderState wrong = state;
    wrong.*member = value;
    CHECK_THROWS_AS(loader.restore(wrong), ValueError);
  }
}

TEST_CASE("a state is read from its text, and from nothing else") {
  LoaderState state{.step = 12,
                    .samples = 96,
                    .epoch = 1,
                    .sample = 32,
                    .epoch_samples = 64,
                    .seq = 8,
                    .seed = ~uint64_t{0},
                    .shuffle = false,
                    .drop_last = false,
                    .data = 1234567890123456789u};
  std::string text = to_string(state);
  CHECK(nn::read_loader_state(text) == state);
  auto with = [&](std::string from, const std::string& to) {
    std::string changed = text;
    return changed.replace(text.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{}"), text.substr(1), text + "}",
        with("\"epoch\":1", "\"epoch\":-1"), with("\"epoch\":1", "\"epoch\":1.5"),
        with("\"epoch\":1", "\"epoch\":\"1\""), with("\"epoch\":1", "\"epoch\":9223372036854775808"),
        with("false", "0"), with("\"seq\"", "\"sek\""), with("\"version\":1", "\"version\":2"),
        with("\"version\":1,", "")}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(nn::read_loader_state(bad), ValueError);
  }
}
