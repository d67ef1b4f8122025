// Sizes that do not divide, empty blocks, and reshapes of split dims.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE(
    "a tensor from blocks has the same global shape on all ranks, and blocks that are not balanced are refused on "
    "all") {
  on_mesh({{"x", 4}}, [](dist::DeviceMesh mesh) {
    int64_t at = mesh.coordinate("x");
    Tensor whole = normal({10, 2}, 1);
    int64_t rows = at < 2 ? 3 : 2, first = at < 2 ? 3 * at : 6 + 2 * (at - 2);
    Tensor x = dist::from_local(contiguous(slice(whole, 0, first, first + rows)), mesh.layout("x, -"));
    CHECK(x.shape() == Shape{10, 2});
    CHECK(equal(x, whole));
    Tensor bad = zeros({at < 3 ? 3 : 1, 2}, {.dtype = DType::f64});
    CHECK(contains(message_of<ShapeError>([&] { dist::from_local(bad, mesh.layout("x, -")); }), {"balanced"}));
  });
}

TEST_CASE("blocks of 5 over 4 start at 0, 2, 3, 4, and those past the end are empty") {
  on_mesh({{"x", 4}}, [](dist::DeviceMesh mesh) {
    auto at = static_cast<size_t>(mesh.coordinate("x"));
    const int64_t offsets[] = {0, 2, 3, 4}, sizes[] = {2, 1, 1, 1};
    dist::Box box = dist::local_box({5}, *mesh.layout("x").data());
    CHECK(box.offset[0] == offsets[at]);
    CHECK(box.shape[0] == sizes[at]);
    Tensor small = placed(f64({1, 2}, {2}), mesh, "x");
    CHECK(numel(small.local()) == (at < 2 ? 1 : 0));
    CHECK(item<double>(sum(small)) == 3);
    CHECK(near(mean(placed(normal({3, 4}, 1), mesh, "x, -")), mean(normal({3, 4}, 1))));
    CHECK(near(mean(placed(normal({1, 4}, 2), mesh, "x, -")), mean(normal({1, 4}, 2))));
  });
}

TEST_CASE("a product over a contracted size of 0 is 0 plus the bias") {
  Tensor b0 = normal({4}, 1);
  auto run = [&](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b); };
  TensorOptions options{.dtype = DType::f64};
  Tensor want = run(zeros({12, 0}, options), zeros({4, 0}, options), b0);
  CHECK(equal(want, expand(b0, {12, 4})));
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* layout : {"x, -", "-, x"})
      CHECK(equal(run(placed(zeros({12, 0}, options), mesh, layout), placed(zeros({4, 0}, options), mesh, "-, -"),
                      placed(b0, mesh, "-")),
                  want));
  });
}

TEST_CASE("one row of a tensor with fewer rows on some ranks") {
  Tensor x0 = normal({3, 4, 5}, 1);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = placed(x0, mesh, "x, -, -");
    for (int64_t i : {0, 1, 2, -1}) CHECK(equal(select(x, 0, i), select(x0, 0, i)));
  });
}

TEST_CASE("tensors split over different dims add up, also on more ranks than rows") {
  Tensor a0 = normal({16, 5}, 1), b0 = normal({16, 5}, 2);
  for (int ranks : {2, 18})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      Tensor a = weight(a0, mesh, "x, -"), b = weight(b0, mesh, "-, x");
      Tensor y = a + b;
      CHECK(equal(y, a0 + b0));
      sum(square(y)).backward();
      CHECK(near(a.grad(), 2.0 * (a0 + b0)));
      CHECK(near(b.grad(), 2.0 * (a0 + b0)));
    });
}

TEST_CASE("7 rows on 8 ranks") {
  Tensor x0 = normal({7, 3}, 1);
  on_mesh({{"x", 8}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(x0, mesh, "x, -");
    CHECK(near(softmax(x, 0), softmax(x0, 0)));
    sum(square(x)).backward();
    CHECK(near(x.grad(), 2.0 * x0));
  });
}

TEST_CASE("both orders of two axes on one dim, with rows that do not divide, gather to the same tensor") {
  Tensor x0 = normal({5, 17}, 1), eight = arange(8);
  on_mesh({{"dp", 4}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* layout : {"dp.tp, -", "tp.dp, -", "-, tp.dp", "dp, tp", "tp, dp"})
      CHECK(equal(placed(x0, mesh, layout), x0));
    CHECK(equal(placed(eight, mesh, "tp.dp"), eight));
    CHECK(equal(placed(eight, mesh, "dp.tp") + placed(eight, mesh, "tp.dp"), eight * 2));
  });
}

TEST_CASE("a reshape across a split dim is right whatever the sizes, and alike on all ranks") {
  struct Reshape {
    Shape from, to;
    const char* layout;
  };
  const Reshape cases[] = {{{6, 5}, {30}, "x, -"},   {{6, 4}, {8, 3}, "-, x"},    {{6, 4}, {8, 3}, "x, -"},
                           {{30}, {6, 5}, "x"},      {{4, 6}, {2, 2, 6}, "x, -"}, {{2, 3, 4}, {6, 4}, "-, x, -"},
                           {{5, 2}, {2, 5}, "x, -"}, {{8}, {2, 2, 2}, "x"}};
  for (int ranks : {2, 3, 4})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      for (const Reshape& c : cases) {
        Tensor x0 = normal(c.from, 1), g = normal(c.to, 2);
        Tensor x = weight(x0, mesh, c.layout);
        Tensor y = reshape(x, c.to);
        CHECK(equal(y, reshape(x0, c.to)));
        sum(y * dist::replicate(clone(g), mesh)).backward();
        CHECK(equal(x.grad(), reshape(g, c.from)));
        CHECK(x.grad().layout() == x.layout());
      }
    });
}

TEST_CASE("a reshape keeps the splits whose blocks stay where they are") {
  on_mesh({{"a", 2}, {"b", 2}}, [](dist::DeviceMesh mesh) {
    dist::ForbidImplicitRedistribution forbid;
    Tensor x = reshape(placed(normal({1, 8, 6}, 1), mesh, "a, b, -"), {1, 2, 4, 6});
    CHECK(equal(x, reshape(normal({1, 8, 6}, 1), {1, 2, 4, 6})));
    CHECK(to_string(reshape(placed(normal({8, 6}, 1), mesh, "a.b, -"), {2, 4, 6}).layout()).find("a") == 0);
    CHECK(to_string(reshape(placed(normal({2, 4, 6}, 1), mesh, "a, b, -"), {8, 6}).layout()) == "a.b, -");
  });
}

TEST_CASE("a reshape of a tensor split on two axes gives gradients in the old blocks") {
  Tensor x0 = normal({2, 8, 4, 6}, 1);
  Tensor x1 = weight(x0);
  sum(square(reshape(x1, {64, 6})) * 0.5).backward();
  on_mesh({{"a", 2}, {"b", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(x0, mesh, "a, -, b, -");
    sum(square(reshape(x, {64, 6})) * 0.5).backward();
    CHECK(x.grad().layout() == x.layout());
    CHECK(near(x.grad(), x1.grad()));
  });
}
