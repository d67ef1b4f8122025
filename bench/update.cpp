// An optimizer's step alone, on one core: a large tensor, and as many elements in many small ones.
#include <cleave/core/parallel.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/reduce.h>
#include <cleave/optim/adam.h>

#include <cstring>

#include "measure.h"

using namespace cleave;

namespace {

constexpr int64_t kElements = 1 << 24;

std::vector<Tensor> weights(int64_t count, DType dtype) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < count; ++i) {
    Tensor w = randn({kElements / count}, {.dtype = dtype, .seed = static_cast<uint64_t>(i)});
    w.set_requires_grad();
    sum(w * 0.5).backward();
    all.push_back(w);
  }
  return all;
}

void measure(const char* name, int64_t count, DType dtype) {
  optim::AdamW update(weights(count, dtype), {.lr = 1e-3});
  double seconds = bench::least(10, [&] { update.step(); });
  bench::report("update", std::string("adamw ") + name + " " + std::string(to_string(dtype)), seconds / kElements * 1e9,
                "ns");
}

// Bytes that an update must move: read w, g, m, v and write w, m, v.
void bound() {
  std::vector<char> from(kElements * 14, 1), to(kElements * 14, 2);
  double seconds = bench::least(10, [&] { std::memcpy(to.data(), from.data(), to.size()); });
  bench::report("update", "memcpy of 28 bytes", seconds / kElements * 1e9, "ns");
}

}  // namespace

int main() {
  set_num_threads(1);
  bound();
  measure("large", 1, DType::f32);
  measure("small", 1 << 13, DType::f32);
  measure("large", 1, DType::bf16);
}
