// The order of an epoch: a permutation, and a random one.
#include <set>

#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;
using nn::Shuffle;

TEST_CASE("every size has permutations, and each epoch and seed another one") {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4099}) {
    CAPTURE(n);
    std::set<std::vector<int64_t>> orders;
    for (uint64_t seed : {0u, 1u})
      for (int64_t epoch : {0, 1, 2}) {
        Shuffle shuffle(n, seed, epoch), again(n, seed, epoch);
        std::vector<int64_t> order;
        for (int64_t i = 0; i < n; ++i) order.push_back(shuffle[i]);
        CHECK(order[static_cast<size_t>(n / 2)] == again[n / 2]);
        orders.insert(order);
        CHECK(std::set<int64_t>(order.begin(), order.end()).size() == static_cast<size_t>(n));
        CHECK(*std::min_element(order.begin(), order.end()) == 0);
        CHECK(*std::max_element(order.begin(), order.end()) == n - 1);
      }
    if (n >= 16) CHECK(orders.size() == 6);
  }
}

TEST_CASE("a shuffle of any size needs no memory, and refuses what is outside") {
  int64_t n = int64_t{1} << 61;
  Shuffle shuffle(n, 1, 0);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 100; ++i) seen.insert(shuffle[n - 1 - i]);
  CHECK(seen.size() == 100);
  CHECK(*seen.begin() >= 0);
  CHECK(*seen.rbegin() < n);
  CHECK_THROWS_AS(shuffle[n], ValueError);
  CHECK_THROWS_AS(shuffle[-1], ValueError);
  CHECK(Shuffle(0, 1, 0).size() == 0);
  CHECK_THROWS_AS(Shuffle(-1, 1, 0), ValueError);
}

// Each of n things comes to each of n positions about equally often. chi2 of (n-1)^2 degrees of freedom: mean (n-1)^2,
// deviation sqrt(2) (n-1); the bound is six deviations above.
TEST_CASE("over many epochs every thing comes to every position equally often") {
  for (int64_t n : {3, 5, 8, 13}) {
    CAPTURE(n);
    constexpr int64_t kEpochs = 4000;
    std::vector<double> counts(static_cast<size_t>(n * n));
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      Shuffle shuffle(n, 7, epoch);
      for (int64_t i = 0; i < n; ++i) ++counts[static_cast<size_t>(i * n + shuffle[i])];
    }
    double expected = static_cast<double>(kEpochs) / static_cast<double>(n), chi2 = 0;
    for (double c : counts) chi2 += (c - expected) * (c - expected) / expected;
    auto freedom = static_cast<double>((n - 1) * (n - 1));
    CHECK(chi2 < freedom + 6 * std::sqrt(2 * freedom));
  }
}

TEST_CASE("neighbours do not stay neighbours") {
  int64_t n = 10000, kept = 0;
  Shuffle shuffle(n, 3, 0);
  for (int64_t i = 0; i + 1 < n; ++i) kept += shuffle[i + 1] == shuffle[i] + 1;
  CHECK(kept < 10);  // one is expected
}
