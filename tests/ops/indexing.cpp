// Slices, gathers, embeddings and order statistics of split tensors.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("slice bounds are clamped against the global size, not a block's") {
  Tensor x0 = normal({2, 8}, 1);
  on_mesh({{"x", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = placed(x0, mesh, "-, x");
    for (auto [start, end] : {std::pair{7, 13}, {-3, 8}, {2, -1}, {5, 2}, {0, 100}})
      CHECK(equal(slice(x, 1, start, end), slice(x0, 1, start, end)));
    CHECK(slice(x, 1, 7, 13).shape() == Shape{2, 1});
    CHECK(contains(message_of<ShapeError>([&] { narrow(x, 1, 7, 6); }), {"[narrow]", "7", "8"}));
  });
}

TEST_CASE("an embedding's gradient sums over data ranks and stays split over the vocabulary") {
  Tensor ids0 = randint(0, 7, {4, 5}, {.seed = 1}), w0 = normal({7, 3}, 2);
  Tensor w1 = weight(w0);
  sum(square(embedding(ids0, w1))).backward();
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* table : {"tp, -", "-, tp", "-, -", "tp.dp, -", "dp, tp"}) {
      Tensor w = weight(w0, mesh, table);
      Tensor y = embedding(placed(ids0, mesh, "dp, -"), w);
      CHECK(equal(y, embedding(ids0, w0)));
      sum(square(y)).backward();
      CHECK(near(w.grad(), w1.grad()));
      CHECK(w.grad().layout() == w.layout());
    }
  });
}

TEST_CASE("a split vocabulary is looked up without moving the table") {
  on_mesh({{"tp", 3}}, [](dist::DeviceMesh mesh) {
    Tensor w = weight(normal({11, 4}, 1), mesh, "tp, -"), ids = dist::replicate(randint(0, 11, {6}, {.seed = 2}), mesh);
    dist::record_collectives(true);
    Tensor y = embedding(ids, w);
    CHECK(kinds().empty());
    CHECK(y.layout().is_partial("tp"));
  });
}

TEST_CASE("values and indices of extrema along a split dim are the global ones, the first of equals") {
  Tensor ties = f64({1, 5, 5, 2, 3, 3, 0, 3, -1, -2, -1, -2, 7, 7, 7, 7}, {4, 4}), x0 = normal({4, 11}, 3);
  for (int ranks : {2, 4})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      for (const char* layout : {"-, x", "x, -"})
        for (const Tensor& v : {ties, x0}) {
          Tensor x = placed(v, mesh, layout);
          Extremum most = max(x, 1), least = min(x, 1), want_most = max(v, 1), want_least = min(v, 1);
          CHECK(equal(most.values, want_most.values));
          CHECK(equal(most.indices, want_most.indices));
          CHECK(equal(least.values, want_least.values));
          CHECK(equal(least.indices, want_least.indices));
          CHECK(equal(argmax(x, -1), argmax(v, 1)));
        }
      CHECK(to_vector<int64_t>(argmax(placed(ties, mesh, "-, x"), 1)) == std::vector<int64_t>{1, 0, 0, 0});
    });
}

TEST_CASE("ties share the gradient as on one device, also over empty blocks and infinities") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const Tensor& v :
       {f64({5, 5, 5, 1}, {4}), f64({5, 5, 5}, {3}), f64({-inf, -inf}, {2}), f64({0, 0, 0, 0, 0}, {5})}) {
    Tensor one = weight(v);
    amax(one).backward();
    for (int ranks : {2, 3})
      on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
        Tensor x = weight(v, mesh, "x");
        amax(x).backward();
        CHECK(near(x.grad(), one.grad()));
      });
  }
  Tensor third = weight(f64({5, 5, 5, 1}, {4}));
  amax(third).backward();
  CHECK(to_vector<double>(third.grad())[0] == doctest::Approx(1.0 / 3));
}

TEST_CASE("gather and index_select take global indices") {
  Tensor x0 = normal({5, 7}, 1), columns = randint(0, 7, {5, 4}, {.seed = 2}), rows = tensor<int64_t>({4, 0, 0, 3});
  Tensor x1 = weight(x0);
  sum(square(gather(x1, 1, columns))).backward();
  Tensor y1 = weight(x0);
  sum(square(index_select(y1, 0, rows))).backward();
  on_mesh({{"x", 2}, {"y", 2}}, [&](dist::DeviceMesh mesh) {
    for (const char* layout : {"x, y", "y.x, -", "-, x.y", "-, y"}) {
      Tensor x = weight(x0, mesh, layout), y = weight(x0, mesh, layout);
      Tensor g = gather(x, 1, placed(columns, mesh, "x, -")), s = index_select(y, 0, placed(rows, mesh, "y"));
      CHECK(equal(g, gather(x0, 1, columns)));
      CHECK(equal(s, index_select(x0, 0, rows)));
      sum(square(g)).backward();
      sum(square(s)).backward();
      CHECK(near(x.grad(), x1.grad()));
      CHECK(near(y.grad(), y1.grad()));
    }
  });
}

TEST_CASE(
    "an index out of range is an IndexError with the index and the size on the rank that holds it, a PeerError on "
    "others") {
  CHECK(contains(message_of<IndexError>([] {
                   embedding(tensor<int64_t>({1, 9}), normal({4, 2}, 1));
                 }),
                 {"[embedding]", "9", "4"}));
  CHECK(contains(message_of<IndexError>([] {
                   index_select(normal({4, 2}, 1), 0, tensor<int64_t>({-1}));
                 }),
                 {"[index_select]", "-1", "4"}));
  CHECK(contains(message_of<IndexError>([] {
                   gather(normal({2, 3}, 1), 1, tensor<int64_t>({0, 3}, {2, 1}));
                 }),
                 {"[gather]", "3"}));
  CHECK(contains(message_of<IndexError>([] {
                   cross_entropy(normal({2, 3}, 1), tensor<int64_t>({0, 3}));
                 }),
                 {"[cross_entropy]", "3"}));
  std::string error = message_of<IndexError>([] {
    on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
      Tensor ids = placed(tensor<int64_t>({1, 2, 3, 9}), mesh, "x");
      Tensor y = embedding(ids, placed(normal({4, 2}, 1), mesh, "-, -"));
      item<double>(sum(y));
    });
  });
  CHECK(contains(error, {"[embedding]", "9", "4"}));
}
