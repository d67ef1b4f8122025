// Cross-entropy: what is ignored, how means are taken, and split vocabularies.
#include <doctest/doctest.h>

#include <cmath>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Result {
  Tensor loss, gradient;
};

Result run(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  Tensor loss = cross_entropy(logits, target, options);
  sum(loss).backward();
  return {loss.detach(), logits.grad()};
}

// On meshes of several sizes, with rows, classes or both split, the loss and its gradient are one device's.
void compare(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options, double tolerance = 1e-12) {
  Result one = run(weight(logits), target, options);
  for (int ranks : {2, 3, 4})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      for (auto [l, t] : {std::pair{"-, x", "-"}, {"x, -", "x"}, {"-, -", "-"}}) {
        Result many = run(weight(logits, mesh, l), placed(target, mesh, t), options);
        CHECK(near(many.loss, one.loss, tolerance));
        CHECK(near(many.gradient, one.gradient, tolerance));
      }
    });
  on_mesh({{"x", 2}, {"y", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* l : {"x, y", "-, x.y", "-, y.x", "y.x, -"}) {
      Result many = run(weight(logits, mesh, l), placed(target, mesh, "y"), options);
      CHECK(near(many.loss, one.loss, tolerance));
      CHECK(near(many.gradient, one.gradient, tolerance));
    }
  });
}

}  // namespace

TEST_CASE("the mean counts tokens, not ranks: rows ignored unevenly") {
  Tensor logits = normal({6, 7}, 1);
  compare(logits, tensor<int64_t>({0, 6, 3, 3, 1, -100}), {});
  compare(logits, tensor<int64_t>({0, 6, 3, -100, -100, -100}), {});  // the last rank sees none
  compare(logits, tensor<int64_t>({2, 2, 3, 1, 2, 5}), {.ignore_index = 2});
}

TEST_CASE("three of five targets that count divide by three, whatever the index that is ignored") {
  Tensor logits = normal({5, 4}, 1);
  Tensor rows = -log_softmax(logits, 1);
  std::vector<double> v = to_vector<double>(rows);
  double want = (v[0] + v[4 * 2 + 3] + v[4 * 4 + 2]) / 3;
  CHECK(item<double>(cross_entropy(logits, tensor<int64_t>({0, -100, 3, -100, 2}))) == doctest::Approx(want));
  CHECK(item<double>(cross_entropy(logits, tensor<int64_t>({0, 1, 3, 1, 2}), {.ignore_index = 1})) ==
        doctest::Approx(want));
}

TEST_CASE("nothing but ignored rows is a loss of 0 with gradients of exactly 0, for every reduction") {
  Tensor logits = normal({4, 6}, 1), target = tensor<int64_t>({-100, -100, -100, -100});
  for (const char* reduction : {"mean", "sum", "none"}) {
    CrossEntropyOptions options{.reduction = reduction, .label_smoothing = 0.1, .z_loss = 0.01};
    Result one = run(weight(logits), target, options);
    CHECK(item<double>(sum(abs(one.loss))) == 0);
    CHECK(equal(one.gradient, zeros({4, 6}, {.dtype = DType::f64})));
    compare(logits, target, options, 0);
  }
}

TEST_CASE("label smoothing and z-loss use the whole vocabulary, also where it does not divide") {
  for (int64_t classes : {8, 11, 50}) {
    Tensor logits = normal({6, classes}, 1), target = randint(0, classes, {6}, {.seed = 2});
    for (const char* reduction : {"mean", "sum", "none"})
      compare(logits, target, {.reduction = reduction, .label_smoothing = 0.1, .z_loss = 0.02});
  }
}

TEST_CASE("logits a thousand times larger stay finite") {
  Tensor logits = normal({6, 8}, 1) * 1000.0, target = randint(0, 8, {6}, {.seed = 2});
  Result one = run(weight(logits), target, {.label_smoothing = 0.1});
  CHECK(std::isfinite(item<double>(one.loss)));
  CHECK(item<bool>(all(isfinite(one.gradient))));
  compare(logits, target, {.label_smoothing = 0.1});
}

TEST_CASE("the gradient on every rank's classes is softmax less the target") {
  Tensor logits = normal({2, 8}, 1), target = tensor<int64_t>({1, 6});
  Tensor want = softmax(logits, 1) - cast(eq(unsqueeze(target, 1), unsqueeze(arange(8), 0)), DType::f64);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(logits, mesh, "-, x");
    dist::record_collectives(true);
    Tensor loss = cross_entropy(x, placed(target, mesh, "-"), {.reduction = "sum"});
    CHECK(kinds().size() <= 3);
    dist::record_collectives(true);
    loss.backward();
    CHECK(kinds().empty());
    CHECK(near(x.grad(), want));
  });
}

TEST_CASE("logits that all ranks hold whole are not counted once per rank") {
  Tensor logits = f64({0, 1, 2, 3}, {1, 4}), target = tensor<int64_t>({3});
  CHECK(item<double>(cross_entropy(logits, target)) == doctest::Approx(0.4402).epsilon(1e-4));
  compare(logits, target, {});
}

TEST_CASE("a second term of the same log-softmax gets its own gradient beside the loss's") {
  Tensor logits = normal({4, 6}, 1), target = tensor<int64_t>({0, 5, 2, 3}, {4, 1});
  auto loss = [](const Tensor& x, const Tensor& t) {
    Tensor l = log_softmax(x, 1);
    return sum(exp(l) * l) - sum(gather(l, 1, t));
  };
  Tensor one = weight(logits);
  Tensor want = loss(one, target);
  want.backward();
  for (int ranks : {2, 3})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      for (const char* layout : {"-, x", "x, -"}) {
        Tensor x = weight(logits, mesh, layout);
        Tensor y = loss(x, placed(target, mesh, "-, -"));
        CHECK(near(y, want.detach()));
        y.backward();
        CHECK(near(x.grad(), one.grad()));
      }
    });
}

TEST_CASE("a split sequence gives the loss and gradients of a whole one") {
  Tensor logits = normal({2, 5, 7}, 1), target = randint(0, 7, {2, 5}, {.seed = 2});
  Tensor one = weight(logits);
  Tensor want = cross_entropy(transpose(one, 1, 2), target);
  want.backward();
  on_mesh({{"dp", 2}, {"cp", 2}}, [&](dist::DeviceMesh mesh) {
    for (auto [l, t] : {std::pair{"dp, cp, -", "dp, cp"}, {"-, cp, dp", "-, cp"}, {"-, dp.cp, -", "-, dp.cp"}}) {
      Tensor x = weight(logits, mesh, l);
      Tensor loss = cross_entropy(transpose(x, 1, 2), placed(target, mesh, t));
      CHECK(near(loss, want.detach()));
      loss.backward();
      CHECK(near(x.grad(), one.grad()));
    }
  });
}

TEST_CASE("micro-batches with 1, 4 and 7 tokens that count, in any order, add up to the gradient of one batch") {
  Tensor x0 = normal({12, 5}, 1), w0 = normal({7, 5}, 2), target = randint(0, 7, {12}, {.seed = 3});
  Tensor one = weight(w0);
  cross_entropy(linear(x0, one), target).backward();
  const std::vector<std::pair<int64_t, int64_t>> parts = {{0, 1}, {1, 5}, {5, 12}};
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = placed(x0, mesh, "-, -"), t = placed(target, mesh, "-");
    for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
      Tensor w = weight(w0, mesh, "-, -");
      for (size_t k : order) {
        Tensor rows = dist::redistribute(slice(x, 0, parts[k].first, parts[k].second), mesh.layout("x, -"));
        Tensor labels = dist::redistribute(slice(t, 0, parts[k].first, parts[k].second), mesh.layout("x"));
        Tensor loss = cross_entropy(linear(rows, w), labels, {.reduction = "sum"}) / 12.0;
        loss.backward({.sync = false});
      }
      sync_gradients({w});
      CHECK(near(w.grad(), one.grad()));
    }
  });
}
