// Many more random programs, on more meshes.
#include <doctest/doctest.h>

#include <cstdio>

#include "support/programs.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("random programs on many meshes give one device's values and gradients") {
  const std::vector<dist::MeshAxis> meshes[] = {
      {{"x", 1}},           {{"x", 2}},           {{"x", 3}},
      {{"x", 5}},           {{"x", 2}, {"y", 1}}, {{"x", 2}, {"y", 2}},
      {{"x", 2}, {"y", 3}}, {{"x", 3}, {"y", 2}}, {{"x", 2}, {"y", 2}, {"z", 2}}};
  Report report;
  uint64_t first = 1'000'000;
  for (const auto& axes : meshes) check_programs(first += 10'000, 3000, axes, report);
  std::printf("note: programs: %lld cases\n", static_cast<long long>(report.cases()));
  INFO(report.text());
  CHECK(report.failures() == 0);
}
