// What a run shows: the curve, the log's lines, the choice of a token.
#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "apps/temporary_folder.h"
#include "gpt/curve.h"
#include "gpt/generate.h"
#include "gpt/log.h"

#include <nlohmann/json.hpp>

using namespace gpt;

TEST_CASE("a falling line is drawn as one") {
  CHECK(draw_curve({4, 3, 2, 1}, 4, 4) ==
        "  4.0000 |*   \n"
        "         | *  \n"
        "         |  * \n"
        "  1.0000 |   *\n"
        "         +----\n");
}

TEST_CASE("columns are means of equal shares, and what is not finite is left out") {
  double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(draw_curve({3, 5, nan, 1, 1}, 2, 2) ==
        "  4.0000 |* \n"
        "  1.0000 | *\n"
        "         +--\n");
  CHECK(draw_curve({2, 2, 2}, 3, 2) == "  2.0000 |   \n  2.0000 |***\n         +---\n");
  CHECK(draw_curve({nan, 1}) == "");
  CHECK(draw_curve({}) == "");
}

TEST_CASE("a line of the log has the fields that programs read") {
  using cleave::dist::CollectiveKind;
  StepRecord r{
      .step = 3,
      .loss = 2.5,
      .grad_norm = 0.5,
      .lr = 1e-3,
      .ms = 12.5,
      .tokens_per_s = 1000,
      .peak_bytes = {100, 200},
      .comm = {{.phase = "backward", .axis = "tp", .kind = CollectiveKind::all_reduce, .bytes = 64, .count = 2}}};
  auto line = nlohmann::json::parse(to_json(r));
  CHECK(line == nlohmann::json::parse(R"({"step": 3, "loss": 2.5, "grad_norm": 0.5, "lr": 0.001, "ms": 12.5,
    "tokens_per_s": 1000.0, "peak_bytes": [100, 200],
    "comm": [{"phase": "backward", "axis": "tp", "kind": "all_reduce", "bytes": 64, "count": 2}]})"));
  r.held_out = 2.25;
  CHECK(nlohmann::json::parse(to_json(r)).at("held_out") == 2.25);
}

TEST_CASE("a log that is gone on with keeps the steps that were done, and nothing half written") {
  gpt::test::TemporaryFolder folder;
  std::string path = folder.path("log");
  {
    LogFile log(path);
    for (int64_t step = 1; step <= 5; ++step) log.write({.step = step, .loss = 1.0 / static_cast<double>(step)});
  }
  std::ofstream(path, std::ios::app) << R"({"step":6,"lo)";
  {
    LogFile log(path, 3);
    log.write({.step = 4, .loss = 9});
  }
  std::ifstream in(path);
  std::vector<double> losses;
  for (std::string line; std::getline(in, line);) losses.push_back(nlohmann::json::parse(line).at("loss"));
  CHECK(losses == std::vector<double>{1, 0.5, 1.0 / 3, 9});
  CHECK_NOTHROW(LogFile(folder.path("new"), 3));
}

TEST_CASE("the log file has a line per step; one that cannot be made is an error") {
  gpt::test::TemporaryFolder folder;
  {
    LogFile log(folder.path("log"));
    log.write({.step = 1});
    log.write({.step = 2});
  }
  std::string text = folder.read("log");
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK_NOTHROW(LogFile("").write({}));
  CHECK_THROWS_AS(LogFile(folder.path("no/log")), cleave::FileError);
}

TEST_CASE("tokens are drawn with the probabilities of the softmax") {
  std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0)};  // 1 : 2 : 5
  int counts[3] = {};
  for (int i = 0; i < 8000; ++i) ++counts[choose_token(logits, 1.0, 0, (i + 0.5) / 8000)];
  CHECK(counts[0] == 1000);
  CHECK(counts[1] == 2000);
  CHECK(counts[2] == 5000);
  int halved[3] = {};
  for (int i = 0; i < 3000; ++i) ++halved[choose_token(logits, 0.5, 2, (i + 0.5) / 3000)];  // 4 : 25
  CHECK(halved[0] == 0);
  CHECK(halved[1] == 414);
  CHECK(choose_token(logits, 0, 0, 0.99) == 2);
  CHECK(choose_token(logits, 1.0, 1, 0.99) == 2);
  CHECK(choose_token({1, 1}, 0, 0, 0.99) == 0);
}
