// Steps that stand out, and the log that says so.
#include "gpt/outlier.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/temporary_folder.h"
#include "gpt/log.h"

using namespace gpt;
using gpt::test::TemporaryFolder;

namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace

TEST_CASE("a spike in a noisy series is an outlier, the noise is not") {
  OutlierDetector detector;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.1);
  int flagged = 0;
  for (int i = 0; i < 300; ++i) flagged += detector.add(2 + noise(random)).outlier;
  CHECK(flagged == 0);
  auto spike = detector.add(4);
  CHECK(spike.outlier);
  CHECK(*spike.z == doctest::Approx(20).epsilon(0.3));
  CHECK(detector.add(4).outlier);        // one spike does not hide the next
  CHECK_FALSE(detector.add(2).outlier);  // nor make its neighbours stand out
}

TEST_CASE("mean and variance are the plain ones at first") {
  OutlierDetector detector({.span = 1e9, .threshold = 1e9, .settled = 4});
  for (double x : {1.0, 2.0, 3.0}) CHECK_FALSE(detector.add(x).z.has_value());
  CHECK_FALSE(detector.add(6).z.has_value());
  // mean 3, variance (4 + 1 + 0 + 9) / 4
  CHECK(*detector.add(10).z == doctest::Approx(7 / std::sqrt(3.5)));
}

TEST_CASE("a falling loss, a constant one, zeros and a new level") {
  OutlierDetector falling, constant, zeros, level;
  for (int i = 0; i < 500; ++i) CHECK_FALSE(falling.add(2 + 4 * std::exp(-i / 30.0)).outlier);
  for (int i = 0; i < 50; ++i) CHECK_FALSE(constant.add(1.5).outlier);
  CHECK_FALSE(constant.add(1.5000001).outlier);
  CHECK(constant.add(1.6).outlier);
  for (int i = 0; i < 50; ++i) CHECK_FALSE(zeros.add(0).outlier);
  CHECK(zeros.add(1e-9).outlier);
  for (int i = 0; i < 60; ++i) level.add(1 + 0.01 * (i % 2));
  int flagged = 0;
  for (int i = 0; i < 300; ++i) flagged += level.add(2).outlier;
  CHECK(flagged == 10);  // then they are the level
  CHECK(level.add(3).outlier);
}

TEST_CASE("no storm: warm-up, a slow rise, a step in noise, nothing but not finite") {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 1);
  int start = 0, rise = 0, shift = 0;
  OutlierDetector norms, rising, shifted, nothing;
  for (int i = 0; i < 400; ++i) {
    start +=
        norms.add((1 + 20 * std::exp(-i / 10.0)) * std::exp(0.2 * noise(random))).outlier;  // as gradient norms begin
    rise += rising.add(1 + 0.01 * i + 0.1 * noise(random)).outlier;
    shift += shifted.add((i < 200 ? 1 : 3) + 0.1 * noise(random)).outlier;
    CHECK(nothing.add(std::nan("")).outlier);
  }
  CHECK(start == 0);
  CHECK(rise == 0);
  CHECK(shift > 0);
  CHECK(shift <= 10);
  for (int i = 0; i < 20; ++i) CHECK_FALSE(nothing.add(1).z.has_value());
  CHECK(nothing.add(1).z == 0.0);
}

TEST_CASE("of a row of outliers that ends before it is a level, none counts for the next") {
  OutlierDetector detector;
  for (int i = 0; i < 50; ++i) detector.add(1 + 0.1 * (i % 2));
  for (int row = 0; row < 5; ++row) {
    for (int i = 0; i < 9; ++i) CHECK(detector.add(1000.0 * std::pow(10, row)).outlier);
    CHECK_FALSE(detector.add(1).outlier);
  }
}

TEST_CASE("old values lose weight as the span says: mean and variance by hand") {
  OutlierDetector detector({.span = 3, .threshold = 1e9, .settled = 4});
  for (double x : {0.0, 2.0, 4.0, 4.0}) detector.add(x);  // weights 1, then 1/2: means 0, 1, 2.5, 3.25
  CHECK(*detector.add(10).z == doctest::Approx(6.75 / std::sqrt(1.9375)));
}

TEST_CASE("a fall is no outlier, and hides no spike behind it") {
  OutlierDetector detector;
  for (int i = 0; i < 50; ++i) detector.add(2 + 0.1 * (i % 2));
  CHECK_FALSE(detector.add(-1000).outlier);
  CHECK_FALSE(detector.add(2).outlier);
  CHECK(detector.add(4).outlier);
}

TEST_CASE("numbers that are not finite are outliers and change nothing") {
  OutlierDetector a, b;
  for (int i = 0; i < 40; ++i) {
    a.add(i % 3);
    b.add(i % 3);
    CHECK(a.add(std::nan("")).outlier);
    CHECK_FALSE(a.add(std::numeric_limits<double>::infinity()).z.has_value());
  }
  CHECK(*a.add(7).z == *b.add(7).z);
}

TEST_CASE("steps that the loss scale left out are no outliers, others that are not finite are") {
  TemporaryFolder folder;
  std::string path = folder.path("run.jsonl");
  {
    LogFile log(path);
    double inf = std::numeric_limits<double>::infinity();
    log.write({.step = 1, .loss = 5, .grad_norm = inf, .skipped = true, .loss_scale = 65536});
    log.write({.step = 2, .loss = 5, .grad_norm = inf, .skipped = true});
    log.write({.step = 3, .loss = std::nan(""), .grad_norm = 1, .skipped = true, .loss_scale = 65536});
  }
  auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  CHECK_FALSE(lines[0].contains("outlier"));
  CHECK(lines[0]["grad_norm"].is_null());
  CHECK(lines[1]["outlier"] == nlohmann::json({"grad_norm"}));
  CHECK(lines[2]["outlier"] == nlohmann::json({"loss"}));
}

TEST_CASE("a log with half a line, foreign lines and steps that stand twice goes on with each step once") {
  TemporaryFolder folder;
  std::string one = to_json({.step = 1, .loss = 1}) + "\n", two = to_json({.step = 2, .loss = 2}) + "\n";
  std::string path = folder.write("run.jsonl", one + "[1]\n{\"step\": \"x\"}\n{\"step\": 1.5}\n" + two + one + two +
                                                   to_json({.step = 3, .loss = 3}) + "\n{\"step\": 4, \"lo");
  LogFile(path, 2).write({.step = 3, .loss = 7});
  auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(lines[i]["step"] == i + 1);
  CHECK(lines[2]["loss"] == 7);
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
  std::filesystem::create_symlink(path, folder.path("link.jsonl"));
  LogFile(folder.path("link.jsonl"), 1).write({.step = 2, .loss = 9});
  CHECK(lines_of(path).size() == 2);  // the file that the link names
  CHECK(std::filesystem::is_symlink(folder.path("link.jsonl")));
  CHECK_THROWS_AS(LogFile(folder.path("no/run.jsonl")), cleave::FileError);
}

TEST_CASE("a log names its outliers, and goes on as if never interrupted") {
  TemporaryFolder folder;
  auto record = [](int64_t step) {
    return StepRecord{.step = step,
                      .loss = step == 45 ? 9 : 2 + 0.1 * static_cast<double>(step % 7),
                      .grad_norm = step == 47 ? std::nan("") : 1 + 0.01 * static_cast<double>(step % 5)};
  };
  std::string whole = folder.path("whole.jsonl"), parts = folder.path("parts.jsonl");
  {
    LogFile log(whole);
    for (int64_t step = 1; step <= 50; ++step) log.write(record(step));
  }
  {
    LogFile log(parts);
    for (int64_t step = 1; step <= 46; ++step) log.write(record(step));
  }
  {
    LogFile log(parts, 30);
    for (int64_t step = 31; step <= 50; ++step) log.write(record(step));
  }
  auto lines = lines_of(whole);
  CHECK(lines == lines_of(parts));
  REQUIRE(lines.size() == 50);
  CHECK(lines[44]["outlier"] == nlohmann::json({"loss"}));
  CHECK(lines[44]["z"]["loss"] > 5);
  CHECK(lines[46]["outlier"] == nlohmann::json({"grad_norm"}));
  CHECK(lines[46]["grad_norm"].is_null());
  CHECK_FALSE(lines[10].contains("z"));
  CHECK_FALSE(lines[49].contains("outlier"));
}
