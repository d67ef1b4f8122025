// Partial sums through ops: what counts once, what must be resolved first, and what comes back as a gradient.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

// A leaf P on x whose terms are the rows of `terms`, by rank.
Tensor from_terms(dist::DeviceMesh mesh, const std::vector<std::vector<double>>& terms, const Shape& shape) {
  return dist::from_local(f64(terms[static_cast<size_t>(mesh.coordinate("x"))], shape), mesh.layout("... partial(x)"),
                          shape);
}

}  // namespace

TEST_CASE("a number added to a partial sum counts once, from either side and as a tensor") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = from_terms(mesh, {{3}, {4}}, {1});
    Tensor ten = dist::replicate(f64({10}, {1}), mesh);
    CHECK(item<double>(x + 10.0) == 17);
    CHECK(item<double>(x - 10.0) == -3);
    CHECK(item<double>(10.0 - x) == 3);
    CHECK(item<double>(x + ten) == 17);
    CHECK(item<double>(x - ten) == -3);
    CHECK(item<double>(ten - x) == 3);
  });
}

TEST_CASE("extrema and norms of a partial sum are those of the sum") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = from_terms(mesh, {{1, -5}, {2, 4}}, {2});
    CHECK(item<double>(max(x)) == 3);
    CHECK(item<double>(min(x)) == -1);
    Tensor y = from_terms(mesh, {{0, 1}, {3, 3}}, {2});
    CHECK(item<double>(norm(y)) == doctest::Approx(5));
    CHECK(item<double>(norm(y, 1.0)) == doctest::Approx(7));
    CHECK(item<double>(norm(y, std::numeric_limits<double>::infinity())) == doctest::Approx(4));
    Tensor z = from_terms(mesh, {{3, -4}, {-2, 3}}, {2});
    CHECK(to_vector<double>(abs(z)) == std::vector<double>{1, 1});
  });
}

TEST_CASE("a partial sum times several numbers in turn takes each of them, without being reduced") {
  on_mesh({{"x", 3}}, [](dist::DeviceMesh mesh) {
    Tensor x = normal({6, 2}, 1);
    Tensor s = sum(placed(x, mesh, "x, -"), 0);
    CHECK(s.layout().is_partial("x"));
    for (double factor : {1.0, 2.0, 3.0, -5.0}) {
      dist::record_collectives(true);
      Tensor y = s * factor;
      CHECK(y.layout().is_partial("x"));
      CHECK(kinds().empty());
      CHECK(near(y, sum(x, 0) * factor));
    }
  });
}

TEST_CASE("any and all over split bools are or and and, for more trues than a byte holds") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    auto split = [&](const std::vector<bool>& v) {
      return placed(tensor(v, {static_cast<int64_t>(v.size())}), mesh, "x");
    };
    CHECK(!item<bool>(all(split({true, true, true, false}))));
    CHECK(item<bool>(any(split({true, true, true, false}))));
    CHECK(!item<bool>(any(split({false, false, false, false}))));
    CHECK(item<bool>(any(split(std::vector<bool>(512, true)))));
    CHECK(item<bool>(all(split(std::vector<bool>(512, true)))));
  });
}

TEST_CASE("from R to partial and back is exact in every dtype") {
  on_mesh({{"x", 3}}, [](dist::DeviceMesh mesh) {
    for (const Tensor& v : {tensor<int64_t>({7}, {1}), tensor<int32_t>({7}, {1}), f64({0.1}, {1}),
                            tensor<float>({0.1f}, {1}), tensor<double>({0.1}, {1}, {.dtype = DType::bf16})}) {
      Tensor p = dist::redistribute(dist::replicate(v, mesh), mesh.layout("... partial(x)"));
      CHECK(equal(dist::redistribute(p, mesh.layout("...")), v));
    }
  });
}

TEST_CASE("the gradient of a partial leaf is whole and counts once, whatever it was made") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    for (const char* to : {"x, -", "-, x", "..."}) {
      Tensor x = dist::from_local(normal({4, 6}, static_cast<uint64_t>(mesh.coordinate("x"))),
                                  mesh.layout("... partial(x)"), {4, 6});
      x.set_requires_grad();
      dist::Layout before = x.layout();
      Tensor y = dist::redistribute(x, mesh.layout(to));
      CHECK(x.layout() == before);
      sum(y).backward();
      CHECK(!x.grad().layout().is_partial("x"));
      CHECK(x.grad().layout().is_replicated());
      CHECK(equal(x.grad(), ones({4, 6}, {.dtype = DType::f64})));
      CHECK(near(y, dist::full_tensor(x)));
    }
  });
}

TEST_CASE("a square after a partial leaf has the gradient of the sum") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = from_terms(mesh, {{3, -1}, {-2, 5}}, {2}).set_requires_grad();
    sum(square(x)).backward();
    CHECK(to_vector<double>(x.grad()) == std::vector<double>{2, 8});
  });
}

TEST_CASE("a product of products keeps its partial sum, and every factor's gradient") {
  Tensor x0 = normal({3, 4}, 1), a0 = normal({5, 4}, 2), b0 = normal({2, 5}, 3);
  auto f = [](const Tensor& x, const Tensor& a, const Tensor& b) {
    return matmul(matmul(x, transpose(a, 0, 1)), transpose(b, 0, 1));
  };
  Tensor x1 = weight(x0), a1 = weight(a0), b1 = weight(b0);
  Tensor y1 = f(x1, a1, b1);
  sum(square(y1)).backward();
  for (int ranks : {2, 3})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      Tensor x = weight(x0, mesh, "-, x"), a = weight(a0, mesh, "-, x"), b = weight(b0, mesh, "-, -");
      Tensor y = f(x, a, b);
      CHECK(y.layout().is_partial("x"));
      CHECK(near(y, y1.detach()));
      sum(square(y)).backward();
      CHECK(near(x.grad(), x1.grad()));
      CHECK(near(a.grad(), a1.grad()));
      CHECK(near(b.grad(), b1.grad()));
    });
}

TEST_CASE("a row-split linear adds its bias once, forward and backward") {
  Tensor x0 = normal({3, 6}, 1), w0 = normal({2, 6}, 2), b0 = f64({100, -100}, {2});
  Tensor b1 = weight(b0);
  Tensor y1 = linear(x0, w0, b1);
  sum(square(y1)).backward();
  for (int ranks : {2, 3})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      Tensor b = weight(b0, mesh, "-");
      Tensor y = linear(placed(x0, mesh, "-, x"), placed(w0, mesh, "-, x"), b);
      CHECK(y.layout().is_partial("x"));
      CHECK(near(y, y1.detach()));
      sum(square(y)).backward();
      CHECK(near(b.grad(), b1.grad()));
    });
}

TEST_CASE("a loss in chunks over a split vocabulary gives the hidden state the gradient of the whole") {
  Tensor h0 = normal({6, 4}, 1), w0 = normal({4, 9}, 2);
  Tensor target0 = randint(0, 9, {6}, {.seed = 3});
  Tensor h1 = weight(h0);
  cross_entropy(matmul(h1, w0), target0, {.reduction = "sum"}).backward();
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor h = weight(h0, mesh, "-, -"), w = placed(w0, mesh, "-, x"), target = dist::replicate(target0, mesh);
    Tensor total;
    for (int64_t at = 0; at < 6; at += 2) {
      Tensor loss =
          cross_entropy(matmul(slice(h, 0, at, at + 2), w), slice(target, 0, at, at + 2), {.reduction = "sum"});
      total = total.defined() ? total + loss : loss;
    }
    total.backward();
    CHECK(near(h.grad(), h1.grad()));
  });
}

TEST_CASE(
    "on axes of any size a row-split product stays a partial sum: a gather counts what it brings, not what it takes") {
  for (int ranks : {2, 8, 64, 1024}) {
    dist::simulate(ranks * 2, 1, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"dp", 2}, {"tp", ranks}});
      const TensorOptions meta{.dtype = DType::f32, .device = Device::Meta};
      Tensor x = dist::distribute(empty({64, 128, 4096}, meta), mesh.layout("dp, -, tp"));
      Tensor w = dist::distribute(empty({4096, 4096}, meta), mesh.layout("-, tp"));
      dist::reset_comm_counts();
      CHECK(to_string(linear(x, w).layout()) == "dp, -, - partial(tp)");
      CHECK(dist::comm_counts().empty());
    });
  }
}
