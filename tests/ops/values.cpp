// Every registered op on one device: values in every dtype against f64, views, meta, unwritten elements.
#include <doctest/doctest.h>

#include <cstdio>

#include "support/op_checks.h"

using namespace cleave::test;

TEST_CASE("every op gives in every dtype and memory form what f64 gives") {
  Report report;
  for (const OpCase& c : registered_cases(Sizes::all)) check_values(c, report);
  std::printf("note: values: %lld cases of (op, shape, dtype or form)\n", static_cast<long long>(report.cases()));
  INFO(report.text());
  CHECK(report.failures() == 0);
}
