// What plans rely on: more bytes never cost less, one call never more than its parts.
#include <doctest/doctest.h>

#include <cleave/dist/cost_model.h>

using namespace cleave::dist;

TEST_CASE("prices grow with bytes, and fusing calls never costs more") {
  using enum CollectiveKind;
  for (CollectiveKind kind : {all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv})
    for (int64_t ranks : {2, 3, 4, 6, 1024})
      for (int64_t bytes = 1; bytes < int64_t{1} << 34; bytes *= 2) {
        CHECK(collective_seconds(kind, ranks, bytes) < collective_seconds(kind, ranks, 2 * bytes));
        CHECK(collective_seconds(kind, ranks, 2 * bytes) < 2 * collective_seconds(kind, ranks, bytes));
      }
  CHECK(collective_seconds(all_reduce, 1, 1 << 20) == 0);
  double fused = collective_seconds(all_reduce, 4, 4096);
  CHECK(fused < collective_seconds(reduce_scatter, 4, 4096) + collective_seconds(all_gather, 4, 4096));
  CHECK(collective_seconds(all_to_all, 4, 1024) < collective_seconds(all_gather, 4, 4096));
}
