// Writes in place: what they reach, what they refuse, and what the tape sees of them.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("a write reaches the storage, every view of it, and raises the version") {
  Tensor x = arange(0, 6, 1, {.dtype = DType::f64}), m = reshape(x, {2, 3});
  uint32_t version = x.version();
  fill_(slice(m, 1, 0, 1), -1);
  CHECK(to_vector<double>(x) == std::vector<double>{-1, 1, 2, -1, 4, 5});
  CHECK(x.version() == version + 1);
  mul_(select(m, 0, 1), 2);
  CHECK(to_vector<double>(x) == std::vector<double>{-1, 1, 2, -2, 8, 10});
  copy_(transpose(m, 0, 1), tensor<int64_t>({0, 3, 1, 4, 2, 5}, {3, 2}));
  CHECK(to_vector<double>(x) == std::vector<double>{0, 1, 2, 3, 4, 5});
  add_(x, ones({6}, {.dtype = DType::f64}), 0.5);
  CHECK(to_vector<double>(x) == std::vector<double>{0.5, 1.5, 2.5, 3.5, 4.5, 5.5});
  zero_(x);
  CHECK(item<double>(sum(abs(m))) == 0);
}

TEST_CASE("a source that overlaps its destination is read before it is written") {
  Tensor x = tensor<double>({1, 2, 3, 4}, {2, 2});
  copy_(x, transpose(x, 0, 1));
  CHECK(to_vector<double>(x) == std::vector<double>{1, 3, 2, 4});
  add_(x, transpose(x, 0, 1));
  CHECK(to_vector<double>(x) == std::vector<double>{2, 5, 5, 8});
}

TEST_CASE("a leaf that requires grad is written under NoGrad only") {
  Tensor w = weight(normal({3}, 1));
  CHECK(contains(message_of<GradError>([&] { mul_(w, 2); }), {"[mul_]", "requires grad", "NoGrad"}));
  NoGrad off;
  mul_(w, 2);
  CHECK(near(w, normal({3}, 1) * 2.0));
}

TEST_CASE("backward refuses a saved tensor that was written since") {
  Tensor w = weight(normal({3}, 1));
  Tensor y = w * 1.0, loss = sum(square(y));
  {
    NoGrad off;
    mul_(y, 2);
  }
  CHECK(contains(message_of<GradError>([&] { loss.backward(); }), {"[square]", "in place", "clone"}));
}

TEST_CASE("sources of other shapes, and plain beside distributed, are refused") {
  CHECK(contains(message_of<ShapeError>([] { copy_(zeros({2}), zeros({3})); }), {"[copy_]", "[2]", "[3]"}));
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = placed(zeros({4}), mesh, "x");
    CHECK(contains(message_of<LayoutError>([&] { add_(x, zeros({4})); }), {"[add_]", "replicate"}));
  });
}

TEST_CASE("writes to a distributed tensor bring the source to its layout") {
  Tensor x0 = normal({5, 4}, 1), y0 = normal({5, 4}, 2);
  on_mesh({{"a", 2}, {"b", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* from : {"a, b", "-, a", "-, -", "- , - partial(a)", "b.a, -"})
      for (const char* to : {"a, -", "-, b.a", "-, -", "-, - partial(b)"}) {
        Tensor x = placed(x0, mesh, to), y = placed(y0, mesh, from);
        add_(x, y, 2.0);
        CHECK(near(x, x0 + y0 * 2.0));
        copy_(x, y);
        CHECK(near(x, y0));
        mul_(x, 3);
        CHECK(near(x, y0 * 3.0));
        fill_(x, 0.5);
        CHECK(equal(x, full({5, 4}, 0.5, {.dtype = DType::f64})));
        CHECK(to_string(x.layout()) == to_string(mesh.layout(to)));
      }
  });
}

TEST_CASE("a write through a view is seen by the tensor, or refused where the view had to be redistributed") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = placed(ones({6, 4}, {.dtype = DType::f64}), mesh, "x, -");
    fill_(slice(x, 1, 0, 2), 0);  // not the split dim: a view
    CHECK(item<double>(sum(x)) == 12);
    std::string refusal = message_of<LayoutError>([&] { fill_(slice(x, 0, 0, 2), 0); });
    CHECK(contains(refusal, {"[fill_]", "redistribution"}));
    CHECK(item<double>(sum(x)) == 12);
    Tensor gathered = dist::redistribute(x, mesh.layout("-, -"));
    CHECK(contains(message_of<LayoutError>([&] { mul_(gathered, 2); }), {"[mul_]"}));
  });
}

TEST_CASE("a memoised redistribution is not used after its source was written") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Tensor x = placed(ones({4}, {.dtype = DType::f64}), mesh, "x");
    Tensor before = dist::redistribute(x, mesh.layout("-"));
    mul_(x, 3);
    Tensor after = dist::redistribute(x, mesh.layout("-"));
    CHECK(item<double>(sum(after)) == 12);
    CHECK(item<double>(sum(before)) == 4);
  });
}
