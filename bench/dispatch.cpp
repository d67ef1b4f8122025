// What one op costs before it computes anything: f32[16] + f32[16].
//   bench_dispatch                          nanoseconds of every case
//   bench_dispatch --case plain --calls N   runs that case N times and says nothing: for counting instructions
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/reduce.h>

#include <functional>

#include "measure.h"

using namespace cleave;

namespace {

struct Case {
  const char* name;
  int calls;  // of one measurement
  std::function<void()> call;
};

std::vector<Case> cases(dist::DeviceMesh mesh) {
  Tensor a = ones({16}), b = ones({16}), leaf = ones({16});
  leaf.set_requires_grad();
  TensorOptions split{.layout = mesh.layout("x")};
  Tensor x = ones({16}, split), y = ones({16}, split);
  return {{"plain", 20000, [=] { a + b; }},
          {"tape", 20000, [=] { leaf + b; }},
          {"distributed", 20000, [=] { x + y; }},
          {"ten_backward", 1000, [=] {
             Tensor t = leaf * b;
             for (int i = 1; i < 10; ++i) t = t * b;
             sum(t).backward();
             leaf.zero_grad();
           }}};
}

void repeat(const Case& c, int calls) {
  for (int i = 0; i < calls; ++i) c.call();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Options o(argc, argv);
  dist::run_ranks({.ranks = 1, .checked = 0}, [&](dist::World& world) {
    for (const Case& c : cases(dist::DeviceMesh(world, {{"x", 1}}))) {
      if (!o.text("case").empty()) {
        if (o.text("case") == c.name) repeat(c, o.number("calls", 1));
        continue;
      }
      double seconds = bench::least(20, [&] { repeat(c, c.calls); });
      bench::report("dispatch", c.name, seconds / c.calls * 1e9, "ns");
    }
  });
}
