// Every registered op on one device: gradients against finite differences, and in every dtype against f64.
#include <doctest/doctest.h>

#include <cstdio>

#include "support/op_checks.h"

using namespace cleave::test;

TEST_CASE("every op's gradient agrees with central differences, and in every dtype with f64") {
  Report report;
  for (const OpCase& c : registered_cases(Sizes::all)) check_gradients(c, report);
  std::printf("note: gradients: %lld cases of (op, shape, dtype or form)\n", static_cast<long long>(report.cases()));
  INFO(report.text());
  CHECK(report.failures() == 0);
}
