// An operation of one's own: a record of its rules outside the library gets dispatch, tape and layouts like any other.
#include <cleave/cleave.h>
#include <cstdio>
using namespace cleave;

namespace {

// dot[n] = sum over d of x[n, d] * y[n, d]
void infer(const InferCall& call, std::span<OutputType> out) {
  const Tensor &x = *call.in[0], &y = *call.in[1];
  require_floating(call.op.name, x);
  if (x.dim() != 2 || !(x.shape() == y.shape()) || x.dtype() != y.dtype())
    throw ShapeError(op_message(call.op.name, describe(x.type()) + " and " + describe(y.type()) + " must be matrices of one type"));
  out[0] = {x.dtype(), {x.shape()[0]}};
}

// Split rows pass through; split columns leave a partial sum; and the op is linear in each input alone.
Rule rule(const RuleCall& call) {
  Rule r = parse_rule("nd,nd->n", call);
  r.reduced = {'d'};
  r.linear = {0b01, 0b10};
  return r;
}

template <class T>
T rounded(double x) {
  if constexpr (sizeof(T) == 2) return T(static_cast<float>(x));
  else return static_cast<T>(x);
}

// Kernels see this rank's blocks, with any strides.
void kernel(const KernelCall& call) {
  const View &x = *call.in[0], &y = *call.in[1], &out = *call.out[0];
  visit_dtype(out.dtype, [&]<class T>(T) {
    for (int64_t n = 0; n < out.shape[0]; ++n) {
      double sum = 0;
      for (int64_t d = 0; d < x.shape[1]; ++d)
        sum += static_cast<double>(x.as<T>()[n * x.strides[0] + d * x.strides[1]]) *
               static_cast<double>(y.as<T>()[n * y.strides[0] + d * y.strides[1]]);
      out.as<T>()[n * out.strides[0]] = rounded<T>(sum);
    }
  });
}

void scale_rows(const KernelCall& call) {
  const View &g = *call.in[0], &y = *call.in[1], &out = *call.out[0];
  visit_dtype(out.dtype, [&]<class T>(T) {
    for (int64_t n = 0; n < out.shape[0]; ++n)
      for (int64_t d = 0; d < out.shape[1]; ++d)
        out.as<T>()[n * out.strides[0] + d * out.strides[1]] =
            rounded<T>(static_cast<double>(g.as<T>()[n * g.strides[0]]) *
                      static_cast<double>(y.as<T>()[n * y.strides[0] + d * y.strides[1]]));
  });
}

// The gradient of the local computation only: what it means across ranks follows from the layouts.
void backward(const BackwardCall& call, std::span<Tensor> gradients) {
  static constexpr Kernel scale{.cpu = scale_rows};
  for (size_t i = 0; i < 2; ++i)
    if (call.needs[i])
      gradients[i] = run_kernel(scale, call.op.name, {&call.grads[0], &call.inputs[1 - i]}, call.input_shape(i), call.input_dtype(i));
}

// Inputs for the test harness, which tries them in every dtype, memory form and layout.
std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Shape& shape : {Shape{5, 7}, Shape{1, 3}, Shape{4, 0}, Shape{0, 2}}) out.push_back({.inputs = {{shape}, {shape}}, .attributes = {}});
  return out;
}

}  // namespace

extern const OpDef row_dot_op{.name = "row_dot",
                              .infer = infer,
                              .layout = rule,
                              .kernel = {.cpu = kernel},
                              .backward = backward,
                              .saves = {.inputs = 0b11},
                              .samples = samples};

Tensor row_dot(const Tensor& x, const Tensor& y) { return apply(row_dot_op, {}, x, y); }

int main(int argc, char** argv) {
  return dist::launch(argc, argv, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", world.size()}});
    Tensor x = randn({6, 7}, {.dtype = DType::f64, .seed = 1}), y = randn({6, 7}, {.dtype = DType::f64, .seed = 2});
    Tensor expected = sum(x * y, 1);
    check(allclose(row_dot(x, y), expected, {.rtol = 1e-12}));
    check(gradcheck([&](const Tensor& v) { return row_dot(v, y); }, x));

    Tensor rows = row_dot(dist::distribute(x, mesh.layout("tp, -")), dist::distribute(y, mesh.layout("tp, -")));
    check(rows.layout().is_sharded("tp"));

    Tensor dx = dist::distribute(x, mesh.layout("-, tp"));
    dx.set_requires_grad(true);
    Tensor columns = row_dot(dx, dist::distribute(y, mesh.layout("-, tp")));
    check(columns.layout().is_partial("tp"));                  // no communication yet
    check(allclose(dist::full_tensor(columns), expected, {.rtol = 1e-12}));
    sum(columns).backward();
    check(allclose(dist::full_tensor(dx.grad()), y));
    if (world.rank() == 0) std::puts("ok");
  });
}
