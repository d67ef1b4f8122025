// The sweep of layouts.cpp on more meshes, with more sizes and more combinations of layouts.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>

#include "support/op_layouts.h"

using namespace cleave;
using namespace cleave::test;

namespace {

void sweep(const std::vector<dist::MeshAxis>& axes, Sizes sizes, const Breadth& breadth) {
  auto start = std::chrono::steady_clock::now();
  Report report;
  std::vector<OpCase> cases = registered_cases(sizes);
  check_layouts(cases, axes, breadth, report);
  check_rows(cases, axes, 200, report);
  std::string mesh;
  for (const auto& a : axes) mesh.append(mesh.empty() ? "" : "x").append(std::to_string(a.size));
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("note: layouts on a mesh of %s: %lld cases of (op, layouts, shape, dtype) in %.1f s\n", mesh.c_str(),
              static_cast<long long>(report.cases()), seconds.count());
  INFO(report.text());
  CHECK(report.failures() == 0);
}

}  // namespace

TEST_CASE("every op under every layout: one rank") {
  sweep({{"x", 1}}, Sizes::all, {.exhaustive = 300, .sampled = 100});
}
TEST_CASE("every op under every layout: 2x1 ranks") {
  sweep({{"x", 2}, {"y", 1}}, Sizes::some, {.exhaustive = 100, .sampled = 60});
}
TEST_CASE("every op under every layout: 1x2 ranks") {
  sweep({{"x", 1}, {"y", 2}}, Sizes::some, {.exhaustive = 100, .sampled = 60});
}
TEST_CASE("every op under every layout: 2 ranks") {
  sweep({{"x", 2}}, Sizes::all, {.exhaustive = 400, .sampled = 100});
}
TEST_CASE("every op under every layout: 4 ranks") { sweep({{"x", 4}}, Sizes::all, {.exhaustive = 200, .sampled = 60}); }
TEST_CASE("every op under every layout: 2x2 ranks") {
  sweep({{"x", 2}, {"y", 2}}, Sizes::all, {.exhaustive = 100, .sampled = 60});
}
TEST_CASE("every op under every layout: 2x3 ranks") {
  sweep({{"x", 2}, {"y", 3}}, Sizes::some, {.exhaustive = 40, .sampled = 30});
}
TEST_CASE("every op under every layout: 3x2 ranks") {
  sweep({{"x", 3}, {"y", 2}}, Sizes::some, {.exhaustive = 40, .sampled = 30});
}
TEST_CASE("every op under every layout: 2x2x2 ranks") {
  sweep({{"x", 2}, {"y", 2}, {"z", 2}}, Sizes::some, {.exhaustive = 30, .sampled = 20, .single = 30});
}
