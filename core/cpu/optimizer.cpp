#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/optimizer.h>
#include <cleave/core/cpu/optimizer.h>

#include <cstring>

namespace cleave::cpu {

// The state's dtype is what the update is computed in, so that a parameter of 16 bits keeps its moments in f32.
void adam(const View& param, const View& grad, const View& m, const View& v, const AdamStep& step,
          const View* rounded) {
  Compute type = m.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  auto run = type == Compute::f64 ? loops.adam_f64 : loops.adam_f32;
  Blocks blocks(param, type);
  for (const View* view : {&param, &grad, &m, &v}) blocks.in(*view);
  for (const View* view : {&param, &m, &v}) blocks.out(*view);
  if (rounded) blocks.out(*rounded);
  auto bytes = static_cast<size_t>(width_of(type));
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) {
    run(in, out, n, step);
    if (rounded) std::memcpy(out[3], out[0], static_cast<size_t>(n) * bytes);
  });
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

namespace {

// One pass over the parameter, its gradient and its state; all but the gradient are written.
template <class Step>
void update(const View& param, const View& grad, std::initializer_list<const View*> state,
            void (*f32)(const void* const*, void* const*, int64_t, const Step&),
            void (*f64)(const void* const*, void* const*, int64_t, const Step&), const Step& step) {
  Compute type = (*state.begin())->dtype == DType::f64 ? Compute::f64 : Compute::f32;
  auto run = type == Compute::f64 ? f64 : f32;
  Blocks blocks(param, type);
  blocks.in(param);
  blocks.in(grad);
  blocks.out(param);
  for (const View* view : state) {
    if (!view) continue;
    blocks.in(*view);
    blocks.out(*view);
  }
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n, step); });
}

}  // namespace

void adagrad(const View& param, const View& grad, const View& sum, const AdagradStep& step) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  update(param, grad, {&sum}, loops.adagrad_f32, loops.adagrad_f64, step);
}

void rmsprop(const View& param, const View& grad, const View& square, const View* mean, const View* buffer,
             const RmsPropStep& step) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  update(param, grad, {&square, mean, buffer}, loops.rmsprop_f32, loops.rmsprop_f64, step);
}

void lion(const View& param, const View& grad, const View& m, const LionStep& step) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  update(param, grad, {&m}, loops.lion_f32, loops.lion_f64, step);
}

void factored_direction(const View& grad, const View& row, const View& column, const View& direction) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  Compute type = direction.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  auto run = type == Compute::f64 ? loops.factored_direction_f64 : loops.factored_direction_f32;
  Blocks blocks(direction, type);
  for (const View* view : {&grad, &row, &column}) blocks.in(*view);
  blocks.out(direction);
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n); });
}

void average(const View& a, const View& x, const AverageStep& step) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  Compute type = a.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  auto run = type == Compute::f64 ? loops.average_f64 : loops.average_f32;
  Blocks blocks(a, type);
  blocks.in(a);
  blocks.in(x);
  blocks.out(a);
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n, step); });
}

void adam_direction(const View& param, const View& grad, const View& m, const View& v, const View& direction,
                    const AdamStep& step) {
  const OptimizerLoops& loops = CLEAVE_PICK(optimizer_loops);
  Compute type = m.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  auto run = type == Compute::f64 ? loops.adam_direction_f64 : loops.adam_direction_f32;
  Blocks blocks(param, type);
  for (const View* view : {&param, &grad, &m, &v}) blocks.in(*view);
  for (const View* view : {&direction, &m, &v}) blocks.out(*view);
  blocks.run([&](int64_t, int64_t n, const void* const* in, void* const* out) { run(in, out, n, step); });
}

}  // namespace cleave::cpu
