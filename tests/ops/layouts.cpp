// Every registered op over layouts of its inputs, on meshes of 2, 3 and 2x2 thread ranks.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>

#include "support/op_layouts.h"

using namespace cleave;
using namespace cleave::test;

namespace {

void sweep(const std::vector<dist::MeshAxis>& axes) {
  auto start = std::chrono::steady_clock::now();
  Report report;
  std::vector<OpCase> cases = registered_cases(Sizes::some);
  check_layouts(cases, axes, {.exhaustive = 40, .sampled = 16}, report);
  check_rows(cases, axes, 24, report);
  std::string mesh;
  for (const auto& a : axes) mesh.append(mesh.empty() ? "" : "x").append(std::to_string(a.size));
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("note: layouts on a mesh of %s: %lld cases of (op, layouts, shape, dtype) in %.1f s\n", mesh.c_str(),
              static_cast<long long>(report.cases()), seconds.count());
  INFO(report.text());
  CHECK(report.failures() == 0);
}

}  // namespace

TEST_CASE("every op under every layout gives one device's values and gradients: 2 ranks") { sweep({{"x", 2}}); }
TEST_CASE("every op under every layout gives one device's values and gradients: 3 ranks") { sweep({{"x", 3}}); }
TEST_CASE("every op under every layout gives one device's values and gradients: 2x2 ranks") {
  sweep({{"x", 2}, {"y", 2}});
}
