// Steps that stand out, and the log that says so.
#include "gpt/outlier.h"

#include <doctest/doctest.h>

#include <cmath>
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
  CHECK(flagged > 0);
  CHECK(flagged < 100);
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
