// custom_shard: a user's code on blocks, as one op.
#include "nn/support.h"

#include <cleave/dist/mesh_state.h>

using namespace cleave;
using namespace cleave::test;
using nn::custom_shard;

namespace {

// Gradients of sum(c_i * y_i) for fixed c_i, at x and w.
template <class F>
std::vector<Tensor> gradients(F f, std::vector<Tensor> at) {
  for (Tensor& t : at) t = (t.is_distributed() ? t : clone(t)).set_requires_grad(true);
  std::vector<Tensor> ys = f(at);
  Tensor loss;
  for (size_t i = 0; i < ys.size(); ++i) {
    Tensor c = normal(100 + i, ys[i].shape());
    if (ys[i].is_distributed()) c = dist::replicate(c, ys[i].layout().mesh());
    Tensor term = sum(ys[i] * c);
    loss = loss.defined() ? loss + term : term;
  }
  loss.backward();
  std::vector<Tensor> out;
  for (Tensor& t : at) out.push_back(dist::full_tensor(t.grad()));
  return out;
}

void check_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(got[i], want[i]) < 1e-12);
  }
}

}  // namespace

TEST_CASE("B1: two outputs, one split and one replicated, of a replicated input") {
  // Taped op by op, the cotangent of y2 = 2x would be counted once per rank.
  Tensor x0 = normal(1, {3, 5}), w0 = normal(2, {5, 7});
  auto body = [](const Tensor& x, const Tensor& w) { return std::vector<Tensor>{matmul(x, w), x * 2.0}; };
  auto want = gradients([&](const std::vector<Tensor>& p) { return body(p[0], p[1]); }, {x0, w0});
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    auto f = custom_shard(body, mesh, {.in = {"-, -", "-, tp"}, .out = {"-, tp", "-, -"}});
    check_same(gradients([&](const std::vector<Tensor>& p) { return f(p[0], p[1]); },
                         {dist::replicate(x0, mesh), dist::replicate(w0, mesh)}),
               want);
    check_same(gradients([&](const std::vector<Tensor>& p) { return f(p[0], p[1]); },
                         {dist::distribute(x0, mesh.layout("dp, tp")), dist::distribute(w0, mesh.layout("tp, dp"))}),
               want);
  });
}

TEST_CASE("every layout of a row-wise function and of a contraction") {
  Tensor x0 = normal(1, {5, 6}), w0 = normal(2, {6, 4});
  auto body = [](const Tensor& x, const Tensor& w) { return std::vector<Tensor>{matmul(x, w)}; };
  auto want = gradients([&](const std::vector<Tensor>& p) { return body(p[0], p[1]); }, {x0, w0});
  struct Case {
    const char *x, *w, *y;
  };
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    for (Case c :
         {Case{"-, -", "-, -", "-, -"}, Case{"dp, -", "-, tp", "dp, tp"}, Case{"dp, tp", "tp, -", "dp, - partial(tp)"},
          Case{"dp.tp, -", "-, -", "dp.tp, -"}, Case{"-, tp.dp", "tp.dp, -", "-, - partial(dp, tp)"}}) {
      CAPTURE(c.y);
      auto f = custom_shard(body, mesh, {.in = {c.x, c.w}, .out = {c.y}});
      check_same(gradients([&](const std::vector<Tensor>& p) { return f(p[0], p[1]); },
                           {dist::replicate(x0, mesh), dist::replicate(w0, mesh)}),
                 want);
      Tensor y = f(dist::replicate(x0, mesh), dist::replicate(w0, mesh))[0];
      CHECK(to_string(y.layout()) == c.y);
      CHECK(distance(y, matmul(x0, w0)) < 1e-13);
    }
  });
}

TEST_CASE("a partial input has a whole gradient") {
  Tensor x0 = normal(1, {4, 6}), w0 = normal(2, {6, 3}), v0 = normal(3, {3, 2});
  auto want = gradients(
      [](const std::vector<Tensor>& p) { return std::vector<Tensor>{matmul(matmul(p[0], p[1]), p[2])}; }, {x0, w0, v0});
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world, true);
    auto f = custom_shard([](const Tensor& y, const Tensor& v) { return matmul(y, v); }, mesh,
                          {.in = {"-, - partial(tp)", "-, -"}, .out = {"-, - partial(tp)"}});
    check_same(gradients([&](const std::vector<Tensor>& p) { return std::vector<Tensor>{f(matmul(p[0], p[1]), p[2])}; },
                         {dist::distribute(x0, mesh.layout("-, tp")), dist::distribute(w0, mesh.layout("tp, -")),
                          dist::replicate(v0, mesh)}),
               want);
  });
}

namespace {

// The ranks' sum of a scalar, by a collective that the tape does not see: the gradient is that of this rank's term.
Tensor summed(const Tensor& term, dist::DeviceMesh mesh) {
  NoGrad off;
  Tensor total = clone(term.detach());
  mesh.state()->communicator(mesh.state()->all_axes()).all_reduce(total.data<double>(), 1, DType::f64);
  return total - term.detach();
}

}  // namespace

TEST_CASE("B5: a function that communicates declares its gradients") {
  Tensor x0 = normal(1, {7}), t0 = normal(2, {});
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", world.size()}});
    Tensor x = dist::distribute(x0, mesh.layout("x")).set_requires_grad(true);
    Tensor t = dist::replicate(t0, mesh).set_requires_grad(true);
    auto loss = [&](const Tensor& b, const Tensor& s) {
      Tensor term = sum(b * s);
      return term + summed(term, mesh);
    };
    auto f = custom_shard(loss, mesh, {.in = {"x", "..."}, .out = {"..."}, .grad = {"", "x"}});
    Tensor y = f(x, t);
    CHECK(distance(y, sum(x0) * t0) < 1e-13);
    y.backward();
    CHECK(distance(t.grad(), sum(x0)) < 1e-13);  // partial: the ranks' terms add up
    CHECK(distance(x.grad(), t0 * ones({7}, {.dtype = DType::f64})) < 1e-13);
    t.zero_grad();
    auto whole = [](const Tensor& b, const Tensor& s) { return std::pair<Tensor, Tensor>{b * 3.0, s * 2.0}; };
    auto g = custom_shard(whole, mesh, {.in = {"x", "..."}, .out = {"x", "..."}, .grad = {"", ""}});
    auto [a, b] = g(x, t);
    (sum(a) + b).backward();
    CHECK(item<double>(t.grad()) == 2.0);  // whole: not counted once per rank
  });
}

TEST_CASE("uneven and empty blocks, several results, other arguments") {
  on_ranks({1, 2, 3, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", world.size()}});
    Tensor a = normal(1, {3, 4});
    auto f = custom_shard(
        [](const Tensor& t, int64_t k) {
          return std::pair<Tensor, Tensor>{t * static_cast<double>(k), sum(t, 0)};
        },
        mesh, {.in = {"x, -"}, .out = {"x, -", "- partial(x)"}});
    auto [y, s] = f(a, 3);  // a plain input is a value that all ranks hold
    CHECK(equal(dist::full_tensor(y), a * 3.0));
    CHECK(distance(s, sum(a, 0)) < 1e-14);
  });
}

TEST_CASE("creation functions inside are plain, and nothing is recorded without need") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", 2}});
    dist::UseMesh ambient(mesh);
    auto f = custom_shard([](const Tensor& t) { return t + ones(t.shape(), {.dtype = t.dtype()}); }, mesh,
                          {.in = {"x"}, .out = {"x"}});
    Tensor x =
        dist::distribute(clone(tensor<double>({1, 2, 3}, {3}, {.layout = mesh.layout("-")})).local(), mesh.layout("x"));
    CHECK(!f(x).requires_grad());
    x.set_requires_grad(true);
    CHECK(f(x).requires_grad());
    NoGrad off;
    CHECK(!f(x).requires_grad());
  });
}

TEST_CASE("the inner tape is released as backward goes, and kept where asked") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", 2}});
    auto f = custom_shard([](const Tensor& t) { return square(t); }, mesh, {.in = {"x"}, .out = {"x"}});
    Tensor x = dist::distribute(tensor<double>({1, 2, 3}), mesh.layout("x")).set_requires_grad(true);
    Tensor y = sum(f(x));
    y.backward({.retain_graph = true});
    y.backward();
    CHECK(to_vector<double>(x.grad()) == std::vector<double>{4, 8, 12});
    check_throws<GradError>([&] { y.backward(); }, {"retain_graph"});
  });
}

TEST_CASE("what it refuses, alike on every rank") {
  on_ranks({2, 3}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", world.size()}});
    Tensor x = dist::distribute(normal(1, {6, 2}), mesh.layout("x, -")).set_requires_grad(true);
    Tensor other = normal(2, {2}).set_requires_grad(true);
    auto with = [&](auto fn, const char* out) { return custom_shard(fn, mesh, {.in = {"x, -"}, .out = {out}}); };
    auto id = [](const Tensor& t, const auto&...) { return t * 1.0; };
    check_throws<LayoutError>([&] { with(id, "x")(x); }, {"[custom_shard]", "output 0", "1 dims"});
    check_throws<ShapeError>(
        [&] { with([&](const Tensor& t) { return slice(t, 0, 0, world.rank() ? 2 : 1); }, "x, -")(x); }, {"balanced"});
    check_throws<DTypeError>(
        [&] { with([&](const Tensor& t) { return cast(t, world.rank() ? DType::f32 : DType::f64); }, "x, -")(x); },
        {"f64", "f32"});
    check_throws<LayoutError>([&] { with([&](const Tensor&) { return x; }, "x, -")(x); }, {"plain blocks"});
    check_throws<GradError>([&] { with([&](const Tensor& t) { return t * other; }, "x, -")(x); },
                            {"not among its inputs"});
    check_throws<GradError>([&] { with([&](const Tensor& t) { return t * other; }, "x, -")(x.detach()); },
                            {"requires grad"});
    Tensor made = other * 2.0;
    check_throws<GradError>([&] { with([&](const Tensor& t) { return t * made; }, "x, -")(x); },
                            {"not among its inputs", "mul"});
    check_throws<LayoutError>([&] { with(id, "x, -")(x, x); }, {"2 input tensors", "1 layouts"});
    check_throws<LayoutError>([&] { custom_shard(id, mesh, {.in = {"y"}, .out = {"..."}}); }, {"y", "input 0"});
    check_throws<LayoutError>(
        [&] {
          custom_shard(id, mesh, {.in = {"x"}, .out = {"x"}, .grad = {"x", ""}});
        },
        {".grad", "2 entries"});
    auto nested = [](const Tensor& t) {
      return nn::value_and_grad([](const std::vector<Tensor>& p) { return sum(p[0]); })({t.detach()}).value;
    };
    check_throws<GradError>([&] { with(nested, "...")(x); }, {"first order"});
  });
}
