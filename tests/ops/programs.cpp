// Random programs of several ops under random layouts, forward and backward, against one device.
#include <doctest/doctest.h>

#include <cstdio>

#include "support/programs.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("random programs under random layouts give one device's values and gradients") {
  Report report;
  check_programs(1, 600, {{"x", 2}}, report);
  check_programs(10001, 400, {{"x", 3}}, report);
  check_programs(20001, 800, {{"x", 2}, {"y", 2}}, report);
  std::printf("note: programs: %lld cases\n", static_cast<long long>(report.cases()));
  INFO(report.text());
  CHECK(report.failures() == 0);
}
