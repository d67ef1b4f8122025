// The command line: defaults, what fits, what does not.
#include "gpt/options.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gpt/watch.h"

using namespace gpt;

namespace {

std::variant<Options, int> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "gpt");
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}
template <class T>
T options(std::vector<std::string> words) {
  return std::get<T>(std::get<Options>(parse(std::move(words))));
}

}  // namespace

TEST_CASE("the defaults are workload W1") {
  auto o = options<TrainOptions>({"train"});
  CHECK(o.model == Config{.vocab = 256, .layers = 4, .dim = 192, .heads = 6, .kv_heads = 6, .ffn = 768, .seq = 128});
  CHECK(o.step.batch == 16);
  CHECK(o.step.dtype == cleave::DType::f32);
  CHECK(o.update.clip == 1.0);
  CHECK(o.deferred);
}

TEST_CASE("every option of a run is read") {
  auto o = options<TrainOptions>(
      {"train",       "--layers",  "2",    "--dim",     "40",          "--heads",      "5",      "--kv-heads",
       "1",           "--ffn",     "50",   "--seq",     "17",          "--batch",      "3",      "--vocab",
       "257",         "--dropout", "0.1",  "--tied",    "--positions", "rope",         "--norm", "rms",
       "--dtype=f64", "--lr",      "0.01", "--steps",   "20",          "--seed",       "7",      "--data",
       "x",           "--mesh",    "tp=2", "--plan",    "tp",          "--ranks",      "2",      "--log",
       "l",           "--save",    "s",    "--compare", "single",      "--no-deferred"});
  CHECK(o.model == Config{257, 2, 40, 5, 1, 50, 17, 0.1, true, "rope", "rms"});
  CHECK(o.step.batch == 3);
  CHECK(o.step.dtype == cleave::DType::f64);
  CHECK(o.update.lr == 0.01);
  CHECK(o.steps == 20);
  CHECK(o.seed == 7);
  CHECK(o.data == "x");
  CHECK(o.mesh == "tp=2");
  CHECK(o.plan == "tp");
  CHECK(o.watch.log == "l");
  CHECK(o.save == "s");
  CHECK(o.compare == "single");
  CHECK(!o.deferred);
}

TEST_CASE("what is watched: the steps of the trace and of the profile") {
  auto range = [](Steps s) { return std::pair(s.first, s.last); };
  auto o = options<TrainOptions>({"train", "--steps", "20", "--trace", "t", "--trace-steps", "7:9"});
  CHECK(o.watch.trace == "t");
  CHECK(range(traced_steps(o)) == std::pair<int64_t, int64_t>(7, 9));
  CHECK(!profiled_steps(o).has(7));
  auto trace = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "--trace", "t"});
    return range(traced_steps(options<TrainOptions>(words)));
  };
  CHECK(trace({"--trace-steps", "800"}) == std::pair<int64_t, int64_t>(800, 800));
  CHECK(trace({"--trace-steps", "799:900"}) == std::pair<int64_t, int64_t>(799, 800));
  CHECK(trace({}) == std::pair<int64_t, int64_t>(3, 5));
  CHECK(trace({"--steps", "4"}) == std::pair<int64_t, int64_t>(3, 4));
  CHECK(trace({"--steps", "1"}) == std::pair<int64_t, int64_t>(1, 1));
  CHECK(range(profiled_steps(options<TrainOptions>({"train", "--profile"}))) == std::pair<int64_t, int64_t>(3, 800));
  CHECK(profiled_steps(options<TrainOptions>({"train", "--profile", "--steps", "2"})).has(1));
  CHECK(!traced_steps(options<TrainOptions>({"train", "--profile"})).has(3));
}

TEST_CASE("values that do not fit are errors naming the option") {
  auto rejected = [](std::vector<std::string> words, const char* why) {
    words.insert(words.begin(), "train");
    CHECK_THROWS_WITH_AS(parse(words), doctest::Contains(why), cleave::ValueError);
  };
  rejected({"--heads", "5"}, "--heads 5");
  rejected({"--kv-heads", "4"}, "--kv-heads 4");
  rejected({"--layers", "0"}, "--layers");
  rejected({"--batch", "0"}, "--batch");
  rejected({"--dropout", "1"}, "--dropout");
  rejected({"--positions", "sine"}, "sine");
  rejected({"--norm", "none"}, "none");
  rejected({"--positions", "rope", "--dim", "18"}, "even");
  rejected({"--lr", "0"}, "--lr");
  rejected({"--lr", "0.1", "--min-lr", "0.2"}, "--min-lr");
  rejected({"--steps", "0"}, "--steps");
  rejected({"--trace", "t", "--trace-steps", "0:2"}, "--trace-steps");
  rejected({"--trace", "t", "--trace-steps", "4:3"}, "--trace-steps");
  rejected({"--trace", "t", "--trace-steps", "3:x"}, "--trace-steps");
  rejected({"--trace", "t", "--steps", "5", "--trace-steps", "6:7"}, "--trace-steps");
  rejected({"--trace-steps", "3:5"}, "--trace");
  rejected({"--profile", "--compare", "single"}, "--compare");
}

TEST_CASE("what cannot be read has exit code 1, help 0") {
  CHECK(std::get<int>(parse({"train", "--no-such-option"})) == 1);
  CHECK(std::get<int>(parse({"train", "--layers", "two"})) == 1);
  CHECK(std::get<int>(parse({"train", "--compare", "double"})) == 1);
  CHECK(std::get<int>(parse({"train", "--dtype", "f8"})) == 1);
  CHECK(std::get<int>(parse({"generate"})) == 1);
  CHECK(std::get<int>(parse({})) == 1);
  CHECK(std::get<int>(parse({"--help"})) == 0);
  CHECK(std::get<int>(parse({"train", "--help"})) == 0);
}

TEST_CASE("a model's description survives its text; other text is an error") {
  Config c = completed({.dim = 48, .dropout = 0.125, .tied = true, .positions = "rope"});
  CHECK(parse_config(to_json(c)) == c);
  CHECK_THROWS_AS(parse_config("{"), cleave::FileError);
  CHECK_THROWS_AS(parse_config("{\"dim\": 8}"), cleave::FileError);
  std::string bad = to_json(c);
  bad.replace(bad.find("\"heads\":6"), 9, "\"heads\":5");
  CHECK_THROWS_AS(parse_config(bad), cleave::FileError);
}
