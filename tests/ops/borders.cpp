// Gradients where replicated tensors meet split ones.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("norm weights that are split or whole beside a split sequence get the whole gradient on every rank") {
  Tensor x0 = normal({4, 6, 8}, 1), w0 = normal({8}, 2), b0 = normal({8}, 3);
  Tensor w1 = weight(w0), b1 = weight(b0);
  sum(square(layer_norm(x0, {8}, w1, b1))).backward();
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* stored : {"-", "dp"}) {
      Tensor w = weight(w0, mesh, stored), b = weight(b0, mesh, stored);
      Tensor use = dist::redistribute(w, mesh.layout("-")), bias = dist::redistribute(b, mesh.layout("-"));
      sum(square(layer_norm(placed(x0, mesh, "dp, tp, -"), {8}, use, bias))).backward();
      CHECK(near(w.grad(), w1.grad()));
      CHECK(near(b.grad(), b1.grad()));
    }
  });
}

TEST_CASE("a step of norm weights beside a split sequence leaves the replicas bit-equal") {
  Tensor x0 = normal({2, 7, 5}, 1), w0 = normal({5}, 2);
  Tensor w1 = weight(w0);
  mean(square(layer_norm(x0, {5}, w1))).backward();
  std::vector<std::vector<double>> seen(4);
  on_mesh({{"x", 4}}, [&](dist::DeviceMesh mesh) {
    Tensor w = weight(w0, mesh, "-");
    mean(square(layer_norm(placed(x0, mesh, "-, x, -"), {5}, w))).backward();
    NoGrad off;
    add_(w, w.grad(), -0.1);
    seen[static_cast<size_t>(mesh.coordinate("x"))] = to_vector<double>(w.local());
    CHECK(near(w.detach(), w0 - 0.1 * w1.grad()));
  });
  for (const auto& v : seen) CHECK(v == seen[0]);
}

TEST_CASE("a weight on all ranks times data of each sums the ranks' data, once") {
  Tensor data = normal({4, 3}, 1);
  on_mesh({{"x", 4}}, [&](dist::DeviceMesh mesh) {
    Tensor w = weight(ones({3}, {.dtype = DType::f64}), mesh, "-");
    sum(placed(data, mesh, "x, -") * w).backward();
    CHECK(near(w.grad(), sum(data, 0)));
  });
}

TEST_CASE("a small tensor added into split heads gets the gradient of all heads") {
  Tensor heads0 = normal({2, 4, 3}, 1), shared0 = normal({3}, 2);
  Tensor shared1 = weight(shared0);
  sum(square(heads0 + shared1)).backward();
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor shared = weight(shared0, mesh, "-");
    sum(square(placed(heads0, mesh, "-, x, -") + shared)).backward();
    CHECK(near(shared.grad(), shared1.grad()));
  });
}

TEST_CASE("an output of several that nobody uses costs nothing and breaks nothing") {
  Tensor x0 = normal({3, 6, 4}, 1);
  Tensor x1 = weight(x0);
  sum(square(unbind(x1, 0)[1])).backward();
  Tensor m1 = weight(x0);
  sum(square(max(m1, 1).values)).backward();
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* layout : {"x, -, -", "-, x, -", "-, -, x"}) {
      Tensor x = weight(x0, mesh, layout);
      sum(square(unbind(x, 0)[1])).backward();
      CHECK(near(x.grad(), x1.grad()));
      CHECK(x.grad().layout() == x.layout());
      Tensor m = weight(x0, mesh, layout);
      sum(square(max(m, 1).values)).backward();
      CHECK(near(m.grad(), m1.grad()));
    }
  });
}

TEST_CASE("a frozen norm weight leaves the input's gradient right on two axes") {
  Tensor x0 = normal({4, 6, 5}, 1), w0 = normal({5}, 2);
  Tensor x1 = weight(x0);
  sum(square(rms_norm(x1, {5}, w0))).backward();
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(x0, mesh, "dp, tp, -");
    sum(square(rms_norm(x, {5}, placed(w0, mesh, "-")))).backward();
    CHECK(near(x.grad(), x1.grad()));
    CHECK(x.grad().layout() == x.layout());
  });
}

TEST_CASE("embeddings that are gathered for a contrastive loss get the gradients of the whole batch") {
  Tensor a0 = normal({6, 4}, 1), b0 = normal({6, 4}, 2), labels0 = arange(6);
  Tensor a1 = weight(a0), b1 = weight(b0);
  cross_entropy(matmul(a1, transpose(b1, 0, 1)), labels0).backward();
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor a = weight(a0, mesh, "x, -"), b = weight(b0, mesh, "x, -");
    Tensor everyone = dist::redistribute(b, mesh.layout("-, -"));
    cross_entropy(matmul(a, transpose(everyone, 0, 1)), placed(labels0, mesh, "x")).backward();
    CHECK(near(a.grad(), a1.grad()));
    CHECK(near(b.grad(), b1.grad()));
  });
}

TEST_CASE("gradients just under, of and just over a bucket's size are all reduced, in whichever bucket") {
  constexpr int64_t n = autograd::kBucketBytes / 8;
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor data = placed(f64({1, 2}, {2, 1}), mesh, "x, -");
    std::vector<Tensor> leaves;
    Tensor total;
    for (int64_t size : {int64_t{1}, n - 1, n, n + 1, int64_t{3}}) {
      leaves.push_back(ones({1, size}, {.dtype = DType::f64, .layout = mesh.layout("-, -")}).set_requires_grad());
      Tensor term = sum(leaves.back() * data);
      total = total.defined() ? total + term : term;
    }
    dist::record_collectives(true);
    total.backward();
    CHECK(kinds().size() >= 3);
    for (const Tensor& w : leaves) {
      CHECK(item<double>(amin(w.grad())) == 3);
      CHECK(item<double>(amax(w.grad())) == 3);
    }
  });
}
