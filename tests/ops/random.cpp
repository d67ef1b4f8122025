// Random numbers and dropout masks depend on the seed, the call and the global index, and on no layout.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("numbers and masks are the same under every layout and number of ranks") {
  auto draw = [](const Tensor& x) { return dropout(x, 0.5); };
  Tensor x0 = ones({6, 10}, {.dtype = DType::f64});
  seed(5);
  Tensor numbers = randn({6, 10}), masked = draw(x0), uniform = rand({7}, {.seed = 3}),
         integers = randint(-5, 9, {6, 10});
  for (int ranks : {1, 2, 3, 4})
    on_mesh({{"a", ranks}, {"b", 1}}, [&](dist::DeviceMesh mesh) {
      for (const char* layout : {"-, -", "a, -", "-, a", "b, a", "a.b, -"}) {
        seed(5);
        CHECK(equal(randn({6, 10}, {.layout = mesh.layout(layout)}), numbers));
        CHECK(equal(draw(placed(x0, mesh, layout)), masked));
        CHECK(equal(rand({7}, {.seed = 3, .layout = mesh.layout("a")}), uniform));
        CHECK(equal(randint(-5, 9, {6, 10}, {.layout = mesh.layout(layout)}), integers));
      }
    });
  on_mesh({{"a", 2}, {"b", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* layout : {"a, b", "b.a, -", "-, a.b", "- , b"}) {
      seed(5);
      CHECK(equal(randn({6, 10}, {.layout = mesh.layout(layout)}), numbers));
      CHECK(equal(draw(placed(x0, mesh, layout)), masked));
    }
  });
}

TEST_CASE(
    "masks are equal where a tensor is replicated, differ between its blocks, and the next call draws new ones on all "
    "ranks") {
  std::vector<std::vector<double>> first(4), second(4);
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    seed(1);
    Tensor x = placed(ones({2, 64}, {.dtype = DType::f64}), mesh, "dp, -");
    auto at = static_cast<size_t>(mesh.coordinate("dp") * 2 + mesh.coordinate("tp"));
    first[at] = to_vector<double>(dropout(x, 0.5).local());
    second[at] = to_vector<double>(dropout(x, 0.5).local());
  });
  CHECK(first[0] == first[1]);
  CHECK(first[2] == first[3]);
  CHECK(first[0] != first[2]);
  CHECK(first[0] != second[0]);
  CHECK(second[0] == second[1]);
}

TEST_CASE("the two halves of a split sequence are dropped out with the slices of one mask") {
  Tensor x0 = ones({8, 16}, {.dtype = DType::f64});
  seed(3);
  Tensor whole = dropout(x0, 0.5);
  std::vector<std::vector<double>> halves(2);
  on_mesh({{"tp", 2}}, [&](dist::DeviceMesh mesh) {
    seed(3);
    Tensor y = dropout(placed(x0, mesh, "tp, -"), 0.5);
    CHECK(equal(y, whole));
    halves[static_cast<size_t>(mesh.coordinate("tp"))] = to_vector<double>(y.local());
  });
  CHECK(halves[0] != halves[1]);
}

TEST_CASE("dropout keeps the mean, scales what it keeps, passes its mask to the gradient, and is off in evaluation") {
  seed(9);
  Tensor x = weight(ones({100, 100}, {.dtype = DType::f64}));
  Tensor y = dropout(x, 0.25);
  sum(y).backward();
  CHECK(equal(x.grad(), y.detach()));
  CHECK(item<double>(mean(y)) == doctest::Approx(1).epsilon(0.02));
  for (double v : to_vector<double>(y)) CHECK((v == 0 || v == doctest::Approx(1 / 0.75)));
  CHECK(equal(dropout(x, 0.25, false), x));
  CHECK(equal(dropout(x, 1.0), zeros({100, 100}, {.dtype = DType::f64})));
  CHECK(contains(message_of<ValueError>([&] { dropout(x, 1.5); }), {"[dropout]", "1.5"}));
}

TEST_CASE("a partial sum passes through dropout with one mask") {
  Tensor x0 = normal({4, 6}, 1);
  seed(2);
  Tensor want = dropout(x0, 0.5);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    seed(2);
    Tensor y = dropout(placed(x0, mesh, "-, - partial(x)"), 0.5);
    CHECK(y.layout().is_partial("x"));
    CHECK(near(y, want));
  });
}

TEST_CASE("an explicit seed draws nothing from the rank's stream") {
  seed(7);
  Tensor a = randn({4});
  seed(7);
  rand({3}, {.seed = 1});
  randint(0, 5, {3}, {.seed = 2});
  CHECK(equal(randn({4}), a));
  CHECK(!equal(randn({4}), a));
}
