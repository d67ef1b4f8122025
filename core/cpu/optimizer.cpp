#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/optimizer.h>
#include <cleave/core/cpu/optimizer.h>

namespace cleave::cpu {

// The state's dtype is what the update is computed in, so that a parameter of 16 bits keeps its moments in f32.
void adam(const View& param, const View& grad, const View& m, const View& v, const AdamStep& step) {
  Compute type = m.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  auto run = type == Compute::f64 ? loops.adam_f64 : loops.adam_f32;
  Blocks blocks(param, type);
  for (const View* view : {&param, &grad, &m, &v}) blocks.in(*view);
  for (const View* view : {&param, &m, &v}) blocks.out(*view);
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n, step); });
}

void sgd(const View& param, const View& grad, const View* buffer, const SgdStep& step) {
  Compute type = (buffer ? buffer->dtype : param.dtype) == DType::f64 ? Compute::f64 : Compute::f32;
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  auto run = type == Compute::f64 ? loops.sgd_f64 : loops.sgd_f32;
  Blocks blocks(param, type);
  blocks.in(param);
  blocks.in(grad);
  blocks.out(param);
  if (buffer) {
    blocks.in(*buffer);
    blocks.out(*buffer);
  }
  blocks.run(
      [&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n, step, buffer != nullptr); });
}

}  // namespace cleave::cpu
