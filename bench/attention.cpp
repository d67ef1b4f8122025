// Causal attention, forward and backward: bench_attention --workload W1 [--dtype f32] [--calls 10]
#include <cleave/core/allocator.h>
#include <cleave/core/parallel.h>
#include <cleave/ops/attention.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/creation.h>

#include "measure.h"
#include "workload.h"

using namespace cleave;

int main(int argc, char** argv) {
  bench::Options o(argc, argv);
  set_num_threads(o.number("threads", 1));
  std::string name = o.text("workload", "W1"), dtype = o.text("dtype", "f32");
  auto w = bench::workload("attention", name);
  Shape shape{w["batch"], w["heads"], o.number("seq", w["seq"]), w["head_dim"]};
  TensorOptions options{.dtype = dtype == "bf16" ? DType::bf16 : DType::f32};
  Tensor q = randn(shape, options), k = randn(shape, options), v = randn(shape, options), g = randn(shape, options);
  for (const Tensor& x : {q, k, v}) x.set_requires_grad();

  int64_t held = memory_stats().active;
  double seconds = bench::least(o.number("calls", 10), [&] {
    scaled_dot_product_attention(q, k, v, {.is_causal = true}).backward(g);
    for (const Tensor& x : {q, k, v}) x.zero_grad();
  });
  if (!o.text("seq").empty()) name = "T=" + o.text("seq");
  name.append(" ").append(dtype);
  bench::report("attention", name, seconds * 1e3, "ms");
  bench::report("attention.memory", name, static_cast<double>(memory_stats().peak - held) * 1e-6, "MB");
}
