// value_and_grad: sens, what it leaves alone, and what it refuses.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;
using nn::value_and_grad;
using Weights = std::vector<Tensor>;

namespace {

Tensor w0() { return normal(1, {3, 4}); }
Tensor b0() { return normal(2, {4}); }

}  // namespace

TEST_CASE("one output: a scalar gets 1, anything else ones") {
  auto [value, grads] = value_and_grad([](const Weights& p) { return sum(square(p[0])); })({w0()});
  CHECK(allclose(grads[0], w0() * 2.0, {.rtol = 1e-14}));
  CHECK(!value.requires_grad());
  auto whole = value_and_grad([](const Weights& p) { return square(p[0]); })({w0()});
  CHECK(allclose(whole.grads[0], w0() * 2.0, {.rtol = 1e-14}));
  CHECK(allclose(whole.value, square(w0()), {.rtol = 0}));
}

TEST_CASE("several outputs: the first gets 1, or each its own number or tensor") {
  auto f = [](const Weights& p) { return std::pair<Tensor, Tensor>{sum(p[0]), square(p[1])}; };
  auto first = value_and_grad(f)({w0(), b0()});
  CHECK(allclose(first.grads[0], ones({3, 4}, {.dtype = DType::f64})));
  CHECK(allclose(first.grads[1], zeros({4}, {.dtype = DType::f64})));
  CHECK(allclose(first.value.second, square(b0()), {.rtol = 0}));
  Tensor c = normal(3, {4});
  auto both = value_and_grad(f, {.sens = {3.0, c}})({w0(), b0()});
  CHECK(allclose(both.grads[0], full({3, 4}, 3.0, {.dtype = DType::f64})));
  CHECK(allclose(both.grads[1], b0() * c * 2.0, {.rtol = 1e-14}));
  check_throws<ValueError>([&] { value_and_grad(f, {.sens = {1.0}})({w0(), b0()}); }, {"1 sens", "2 outputs"});
  check_throws<ShapeError>(
      [&] {
        value_and_grad(f, {.sens = {1.0, ones({3}, {.dtype = DType::f64})}})({w0(), b0()});
      },
      {"[3]", "[4]"});
}

TEST_CASE("weights require grad for the call only; no .grad changes and no hook runs") {
  Tensor w = w0(), leaf = b0();
  leaf.set_requires_grad(true);
  sum(leaf * 5.0).backward();
  int hooks = 0;
  leaf.add_hook([&](const Tensor& g) {
    ++hooks;
    return g;
  });
  bool inside = false;
  auto result = value_and_grad([&](const Weights& p) {
    inside = p[0].requires_grad() && p[0].impl() == w.impl();
    return sum(p[0] * leaf);
  })({w});
  CHECK(inside);
  CHECK(!w.requires_grad());
  CHECK(!w.impl()->parameter);
  CHECK(!w.grad().defined());
  CHECK(hooks == 0);
  CHECK(to_vector<double>(leaf.grad()) == std::vector<double>(4, 5.0));
  CHECK(leaf.requires_grad());
  CHECK(result.grads.size() == 1);
  NoGrad off;  // also where the caller records nothing
  CHECK(item<double>(sum(value_and_grad([](const Weights& p) { return sum(p[0]); })({w}).grads[0])) == 12);
}

TEST_CASE("an exception leaves the weights as they were") {
  Tensor w = w0();
  CHECK_THROWS_AS(value_and_grad([](const Weights&) -> Tensor { throw ValueError("no"); })({w}), ValueError);
  CHECK(!w.requires_grad());
  CHECK(item<double>(sum(value_and_grad([](const Weights& p) { return sum(p[0]); })({w}).grads[0])) == 12);
}

TEST_CASE("a weight that is not reached gets zeros, one given twice gets the same gradient twice") {
  auto result = value_and_grad([](const Weights& p) { return sum(square(p[0])); })({w0(), b0()});
  CHECK(to_vector<double>(result.grads[1]) == std::vector<double>(4, 0.0));
  Tensor w = w0();
  auto twice = value_and_grad([](const Weights& p) { return sum(p[0] * p[1]); })({w, w});
  CHECK(allclose(twice.grads[0], w * 2.0, {.rtol = 1e-14}));
  CHECK(allclose(twice.grads[1], w * 2.0, {.rtol = 1e-14}));
  auto constant = value_and_grad([](const Weights&) { return zeros({}); })({w});
  CHECK(to_vector<double>(constant.grads[0]) == std::vector<double>(12, 0.0));
}

TEST_CASE("gradients are first order: nesting, weights from the tape and integers are refused") {
  auto inner = [](const Weights& p) {
    return value_and_grad([](const Weights& q) { return sum(square(q[0])); })(p).value;
  };
  check_throws<GradError>([&] { value_and_grad(inner)({w0()}); }, {"[value_and_grad]", "first order"});
  Tensor w = w0();
  w.set_requires_grad(true);
  check_throws<GradError>([&] { value_and_grad([](const Weights& p) { return sum(p[0]); })({w * 2.0}); },
                          {"weight 0", "detach"});
  check_throws<GradError>([&] { value_and_grad([](const Weights& p) { return sum(p[0]); })({arange(3)}); },
                          {"weight 0", "i64"});
  CHECK_NOTHROW(
      value_and_grad([](const Weights& p) { return sum(p[0]); })({w0()}));  // the refusals left nothing behind
}

TEST_CASE("the result equals one device's, whatever the layouts of weights, outputs and sens") {
  Tensor a = normal(5, {6, 3});
  auto f = [](const Tensor& x, const Weights& p) {
    Tensor y = tanh(matmul(x, p[0]) + p[1]);
    return std::vector<Tensor>{sum(square(y)), mean(y, 0)};
  };
  Tensor c = normal(6, {4});
  auto want = value_and_grad([&](const Weights& p) { return f(a, p); }, {.sens = {0.5, c}})({w0(), b0()});
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    for (const char* xl : {"-, -", "dp, -", "dp, tp", "-, dp.tp"})
      for (const char* wl : {"-, -", "-, tp", "tp, -", "dp, tp"}) {
        CAPTURE(xl);
        CAPTURE(wl);
        Tensor x = dist::distribute(a, mesh.layout(xl)), w = dist::distribute(w0(), mesh.layout(wl));
        auto got = value_and_grad([&](const Weights& p) { return f(x, p); }, {.sens = {0.5, dist::replicate(c, mesh)}})(
            {w, dist::distribute(b0(), mesh.layout("tp"))});
        for (size_t i = 0; i < 2; ++i) {
          CHECK(distance(got.value[i], want.value[i]) < 1e-12);
          CHECK(distance(got.grads[i], want.grads[i]) < 1e-12);
        }
        CHECK(got.grads[0].layout() == w.layout());  // in the weight's layout, nothing left partial
      }
  });
}

TEST_CASE("a model's parameters, with gradients in their gradient layouts") {
  on_ranks({2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world, true);
    seed(1);
    auto one = nn::build<nn::Linear>({.dtype = DType::f64}, nullptr, "", 3, 5);
    seed(1);
    auto many = nn::build<nn::Linear>({.dtype = DType::f64}, nullptr, "", 3, 5);
    nn::shard(many, mesh, {.parameter = {{"weight", "-, - => -, - => tp, -"}}});
    Tensor x = normal(9, {2, 3});
    auto want = value_and_grad([&](const Weights&) { return sum(square(one(x))); })(one.parameters());
    auto got =
        value_and_grad([&](const Weights&) { return sum(square(many(dist::replicate(x, mesh)))); })(many.parameters());
    CHECK(to_string(got.grads[0].layout()) == "tp, -");
    for (size_t i = 0; i < 2; ++i) CHECK(distance(got.grads[i], want.grads[i]) < 1e-13);
  });
}
