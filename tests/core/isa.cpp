// The instruction-set levels: lowering them, and that kernels mean the same at each.
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/random.h>
#include <cleave/core/cpu/reduce.h>

#include <doctest/doctest.h>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

TEST_CASE("isa: limits only lower, and every level computes the same up to rounding") {
  constexpr int64_t n = 5000;
  cpu::Isa first = cpu::isa();
  cpu::limit_isa(cpu::Isa::v4);
  CHECK(cpu::isa() == first);
  Data gelu(DType::f32, {n}), sum(DType::f32, {1});
  auto run = [&](const View& to) {
    const View* in[] = {&to};
    cpu::normal(to, {{n}, {0}}, {1, 2}, 0, 1);
    cpu::pointwise(Pointwise::gelu_tanh, in, to);
  };
  run(gelu.view);
  cpu::reduce(cpu::Reduce::sum, gelu.view, sum.view);
  for (cpu::Isa level : {cpu::Isa::v3, cpu::Isa::v2}) {
    cpu::limit_isa(level);
    Data other(DType::f32, {n}), other_sum(DType::f32, {1});
    run(other.view);
    cpu::reduce(cpu::Reduce::sum, gelu.view, other_sum.view);
    for (int64_t i = 0; i < n; ++i) REQUIRE(close(get(other.view, i), get(gelu.view, i), 1e-4, 1e-6));
    CHECK(close(get(other_sum.view, 0), get(sum.view, 0), 1e-6));
    CHECK(cpu::isa() == std::min(first, level));
  }
}
