// Attention whose heads are split: groups that share key and value heads, and heads that do not divide.
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

void compare(int64_t heads, int64_t kv_heads, int ranks, const char* q_layout, const char* kv_layout,
             const AttentionOptions& options) {
  CAPTURE(heads);
  CAPTURE(kv_heads);
  Tensor q0 = normal({2, heads, 5, 4}, 1), k0 = normal({2, kv_heads, 5, 4}, 2), v0 = normal({2, kv_heads, 5, 3}, 3);
  Tensor q1 = weight(q0), k1 = weight(k0), v1 = weight(v0);
  seed(1);
  Tensor want = scaled_dot_product_attention(q1, k1, v1, options);
  sum(square(want)).backward();
  on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
    Tensor q = weight(q0, mesh, q_layout), k = weight(k0, mesh, kv_layout), v = weight(v0, mesh, kv_layout);
    seed(1);
    Tensor y = scaled_dot_product_attention(q, k, v, options);
    CHECK(near(y, want.detach()));
    sum(square(y)).backward();
    CHECK(near(q.grad(), q1.grad()));
    CHECK(near(k.grad(), k1.grad()));
    CHECK(near(v.grad(), v1.grad()));
  });
}

}  // namespace

TEST_CASE("key and value heads that all ranks hold serve split query heads, and get the sum of their gradients") {
  const std::pair<int64_t, int64_t> counts[] = {{8, 2}, {6, 1}, {6, 2}, {6, 3}, {5, 1}, {5, 5}, {4, 4}};
  for (int ranks : {2, 3, 4})
    for (auto [heads, kv] : counts)
      for (const char* kv_layout : {"...", "-, x, -, -"})
        compare(heads, kv, ranks, "-, x, -, -", kv_layout, {.is_causal = true});
}

TEST_CASE("split query positions see their own part of the causal mask, and dropout their part of one mask") {
  compare(4, 2, 3, "-, -, x, -", "...", {.is_causal = true});
  compare(4, 2, 2, "-, -, x, -", "-, -, x, -", {.dropout_p = 0.3, .is_causal = true});
  compare(4, 4, 2, "-, x, -, -", "-, x, -, -", {.dropout_p = 0.3});
}

TEST_CASE("split query heads with whole key and value heads need no communication") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    dist::ForbidImplicitRedistribution forbid;
    Tensor q = placed(normal({2, 6, 5, 4}, 1), mesh, "-, x, -, -"), kv = placed(normal({2, 1, 5, 4}, 2), mesh, "...");
    dist::record_collectives(true);
    Tensor y = scaled_dot_product_attention(q, kv, kv);
    CHECK(kinds().empty());
    CHECK(to_string(y.layout()) == "-, x, -, -");
  });
}

TEST_CASE("query heads that are no multiple of the key heads are refused with both numbers") {
  for (int64_t heads : {3, 33})
    CHECK(contains(
        message_of<ShapeError>([&] {
          scaled_dot_product_attention(normal({1, heads, 2, 4}, 1), normal({1, 2, 2, 4}, 2), normal({1, 2, 2, 4}, 3));
        }),
        {"[scaled_dot_product_attention]", std::to_string(heads).c_str(), "2"}));
}
