// What a cached row may depend on, the order of reductions, and dims counted from the end.
#include <cleave/ops/row_cache.h>

#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("calls that differ in an argument alone do not share a cached row") {
  Tensor x0 = normal({4, 6}, 1);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = placed(x0, mesh, "x, -");
    for (int round = 0; round < 2; ++round) {
      CHECK(equal(clamp(x, 0.25, std::nullopt), clamp(x0, 0.25, std::nullopt)));
      CHECK(equal(clamp(x, std::nullopt, 0.25), clamp(x0, std::nullopt, 0.25)));
      for (const Shape& shape : {Shape{24}, Shape{2, 12}, Shape{4, 3, 2}, Shape{8, 3}})
        CHECK(equal(reshape(x, shape), reshape(x0, shape)));
      for (int64_t n : {1, 3, 5}) CHECK(equal(expand(unsqueeze(x, 0), {n, 4, 6}), expand(unsqueeze(x0, 0), {n, 4, 6})));
      for (int64_t end : {2, 3, 4}) CHECK(equal(slice(x, 0, 1, end), slice(x0, 0, 1, end)));
      for (int64_t step : {1, 2, 3}) CHECK(equal(slice(x, 1, 0, 6, step), slice(x0, 1, 0, 6, step)));
      for (int64_t dim : {0, 1}) {
        CHECK(near(sum(x, dim), sum(x0, dim)));
        CHECK(near(sum(x, dim, true), sum(x0, dim, true)));
        CHECK(near(softmax(x, dim), softmax(x0, dim)));
        CHECK(equal(cat({x, x}, dim), cat({x0, x0}, dim)));
        CHECK(equal(argmax(x, dim), argmax(x0, dim)));
      }
      for (DType to : {DType::f32, DType::i64, DType::bf16}) CHECK(equal(cast(x, to), cast(x0, to)));
      CHECK(near(layer_norm(x, {6}), layer_norm(x0, {6})));
      CHECK(near(layer_norm(x, {4, 6}), layer_norm(x0, {4, 6})));
    }
  });
}

TEST_CASE("slices backward into the size they were cut from") {
  Tensor x0 = normal({6, 4}, 1);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    for (auto [from, to] : {std::pair{0, 2}, {1, 3}, {4, 6}, {0, 6}}) {
      Tensor x = weight(x0, mesh, "x, -");
      sum(slice(x, 0, from, to)).backward();
      Tensor one = weight(x0);
      sum(slice(one, 0, from, to)).backward();
      CHECK(equal(x.grad(), one.grad()));
    }
  });
}

TEST_CASE("numbers and seeds do not grow the cache") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = weight(normal({4, 6}, 1), mesh, "x, -");
    auto step = [&](int i) {
      Tensor y = dropout(x * (1.0 + i) + 0.5 * i, 0.5);
      sum(clamp(y, -i, i + 1.0) + pow(square(y) + 1.0, 0.5 + i)).backward();
    };
    step(0);
    size_t size = row_cache_size();
    for (int i = 1; i < 300; ++i) step(i % 7);
    CHECK(row_cache_size() == size);
  });
}

TEST_CASE("a dim counted from the end is the dim") {
  Tensor x0 = normal({4, 4, 4}, 1);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor a = weight(x0, mesh, "x, -, -"), b = weight(x0, mesh, "x, -, -");
    Tensor g = dist::replicate(normal({4, 4, 4}, 2), mesh);
    dist::record_collectives(true);
    softmax(a, 2).backward(g);
    softmax(b, -1).backward(g);
    CHECK(kinds().empty());
    CHECK(equal(a.grad(), b.grad()));
    CHECK(equal(sum(a.detach(), -2), sum(b.detach(), 1)));
  });
}

TEST_CASE("replicas are bit-equal after sums over two axes in f32") {
  std::vector<std::vector<float>> seen(8);
  on_mesh({{"x", 2}, {"y", 4}}, [&](dist::DeviceMesh mesh) {
    int rank = mesh.coordinate("x") * 4 + mesh.coordinate("y");
    Tensor block = randn({64}, {.seed = static_cast<uint64_t>(rank)}) * 1e3;
    Tensor p = dist::from_local(block, mesh.layout("- partial(x, y)"), {64});
    seen[static_cast<size_t>(rank)] = to_vector<float>(dist::redistribute(p, mesh.layout("-")).local());
    // One axis after the other.
    Tensor q = dist::redistribute(dist::redistribute(p, mesh.layout("- partial(y)")), mesh.layout("-"));
    std::vector<float> later = to_vector<float>(q.local());
    seen[static_cast<size_t>(rank)].insert(seen[static_cast<size_t>(rank)].end(), later.begin(), later.end());
  });
  for (const auto& v : seen) CHECK(v == seen[0]);
}

TEST_CASE("three consumers of one gathered tensor gather it once, and reduce its gradient once") {
  Tensor x0 = normal({4, 6}, 1), w0 = normal({6, 3}, 2);
  Tensor x1 = weight(x0);
  auto f = [](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) {
    return matmul(x, a) + matmul(x, b) * matmul(x, c);
  };
  sum(f(x1, w0, w0 * 2.0, w0 * 3.0)).backward();
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(x0, mesh, "x, -"), a = weight(w0, mesh, "-, x"), b = weight(w0 * 2.0, mesh, "-, x"),
           c = weight(w0 * 3.0, mesh, "-, x");
    dist::record_collectives(true);
    Tensor y = f(x, a, b, c);
    CHECK(kinds() == std::vector<std::string>{"all_gather"});
    Tensor loss = sum(y);
    dist::record_collectives(true);
    loss.backward();
    CHECK(kinds() == std::vector<std::string>{"reduce_scatter"});
    CHECK(near(x.grad(), x1.grad()));
  });
}
