// Ops defined outside the library pass through the same harness: the example's, and one whose two outputs differ in
// how they are split.
#include <doctest/doctest.h>

#define main example_main
#include "../../examples/user_op.cpp"
#undef main

#include "support/op_checks.h"
#include "support/op_layouts.h"

using namespace cleave::test;

// An op without a layout rule does not compile.
static_assert(!std::is_default_constructible_v<LayoutRule>);
static_assert(std::is_convertible_v<Rule (*)(const RuleCall&), LayoutRule>);

namespace {

// y = x w and z = 2 x: where w's columns are split, y is S and z is R, and so are the parts of x's gradient.
void infer_fork(const InferCall& call, std::span<OutputType> out) {
  if (call.shape(0)[1] != call.shape(1)[0]) throw ShapeError(op_message("fork", "sizes"));
  out[0] = {call.dtype(0), {call.shape(0)[0], call.shape(1)[1]}};
  out[1] = {call.dtype(0), call.shape(0)};
}

Rule fork_rule(const RuleCall& call) {
  Rule r = parse_rule("mk,kn->mn,mk", call);
  r.reduced = {'k'};
  r.linear = {0b01};
  return r;
}

double at(const View& v, int64_t i, int64_t j) {
  return visit_dtype(v.dtype,
                     [&]<class T>(T) { return static_cast<double>(v.as<T>()[i * v.strides[0] + j * v.strides[1]]); });
}
void put(const View& v, int64_t i, int64_t j, double x) {
  visit_dtype(v.dtype, [&]<class T>(T) { v.as<T>()[i * v.strides[0] + j * v.strides[1]] = rounded<T>(x); });
}

// out[i, j] = sum over k of a(i, k) b(k, j), plus 2 c[i, j] if given.
template <class A, class B>
void product(int64_t inner, A&& a, B&& b, const View* c, const View& out) {
  for (int64_t i = 0; i < out.shape[0]; ++i)
    for (int64_t j = 0; j < out.shape[1]; ++j) {
      double sum = c ? 2 * at(*c, i, j) : 0;
      for (int64_t k = 0; k < inner; ++k) sum += a(i, k) * b(k, j);
      put(out, i, j, sum);
    }
}

void fork_kernel(const KernelCall& call) {
  const View &x = *call.in[0], &w = *call.in[1];
  product(
      x.shape[1], [&](int64_t i, int64_t k) { return at(x, i, k); }, [&](int64_t k, int64_t j) { return at(w, k, j); },
      nullptr, *call.out[0]);
  product(
      0, [](int64_t, int64_t) { return 0.0; }, [](int64_t, int64_t) { return 0.0; }, &x, *call.out[1]);
}

void fork_backward(const BackwardCall& call, std::span<Tensor> gradients) {
  const Tensor &x = call.inputs[0], &w = call.inputs[1], &gy = call.grads[0], &gz = call.grads[1];
  auto element = [](const Tensor& t, bool turned) {
    return [v = t.impl()->view, turned](int64_t i, int64_t j) { return turned ? at(v, j, i) : at(v, i, j); };
  };
  if (call.needs[0]) {
    gradients[0] = detail::make_tensor(call.input_shape(0), call.input_dtype(0), Device::Cpu);
    const View* direct = gz.defined() ? &gz.impl()->view : nullptr;
    if (gy.defined())
      product(gy.shape()[1], element(gy, false), element(w, true), direct, gradients[0].impl()->view);
    else
      product(0, element(x, false), element(x, false), direct, gradients[0].impl()->view);
  }
  if (call.needs[1] && gy.defined()) {
    gradients[1] = detail::make_tensor(call.input_shape(1), call.input_dtype(1), Device::Cpu);
    product(x.shape()[0], element(x, true), element(gy, false), nullptr, gradients[1].impl()->view);
  }
}

std::vector<Sample> fork_samples() {
  return {{.inputs = {{{5, 3}}, {{3, 4}}}, .attributes = {}}, {.inputs = {{{2, 1}}, {{1, 7}}}, .attributes = {}}};
}

const OpDef fork_op{.name = "fork",
                    .infer = infer_fork,
                    .layout = fork_rule,
                    .kernel = {.cpu = fork_kernel},
                    .backward = fork_backward,
                    .saves = {.inputs = 0b11},
                    .samples = fork_samples,
                    .outputs = 2};

void check_everything(const OpDef& op) {
  Report report;
  std::vector<OpCase> cases = cases_of(op, op.name, Sizes::all);
  for (const OpCase& c : cases) {
    check_values(c, report);
    check_gradients(c, report);
  }
  for (const std::vector<dist::MeshAxis>& axes :
       {std::vector<dist::MeshAxis>{{"x", 2}}, {{"x", 3}}, {{"x", 2}, {"y", 2}}}) {
    check_layouts(cases, axes, {.exhaustive = 400, .sampled = 100}, report);
    check_rows(cases, axes, 100, report);
  }
  INFO(report.text());
  CHECK(report.failures() == 0);
  CHECK(report.cases() > 1000);
}

}  // namespace

TEST_CASE("the example's op passes the whole harness") { check_everything(row_dot_op); }

TEST_CASE("gradients of an input that reaches a split and a replicated output are counted once") {
  check_everything(fork_op);
}

TEST_CASE("the harness finds a wrong rule, a wrong gradient and an unwritten element") {
  auto failures = [](const OpDef& op) {
    Report report;
    std::vector<OpCase> cases = cases_of(op, op.name, Sizes::samples);
    for (const OpCase& c : cases) {
      check_values(c, report);
      check_gradients(c, report);
    }
    check_layouts(cases, {{"x", 2}}, {.exhaustive = 400, .sampled = 100}, report);
    check_rows(cases, {{"x", 2}}, 100, report);
    return report.failures();
  };
  CHECK(failures(row_dot_op) == 0);

  OpDef jointly = row_dot_op;
  jointly.layout = [](const RuleCall& call) {
    Rule r = rule(call);
    r.linear = {0b11};
    return r;
  };
  CHECK(failures(jointly) > 0);

  OpDef not_reduced = row_dot_op;
  not_reduced.layout = [](const RuleCall& call) {
    Rule r = rule(call);
    r.reduced = {};
    return r;
  };
  CHECK(failures(not_reduced) > 0);

  OpDef no_gradient = row_dot_op;
  no_gradient.backward = [](const BackwardCall& call, std::span<Tensor> gradients) {
    BackwardCall swapped = call;
    backward(swapped, gradients);
    if (call.needs[1]) gradients[1] = call.inputs[1];
  };
  CHECK(failures(no_gradient) > 0);

  OpDef lazy = row_dot_op;
  lazy.kernel.cpu = [](const KernelCall& call) {
    View first = *call.out[0];
    first.shape[0] = std::max<int64_t>(0, first.shape[0] - 1);
    const View* out[] = {&first};
    kernel({call.in, out, call.attributes});
  };
  CHECK(failures(lazy) > 0);
}
