// Random fills: by position, whatever the block, layout or number of threads; and with the right distribution.
#include <cleave/core/cpu/random.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include <cstdint>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;
using detail::BlockOrigin;
using detail::RandomKey;

namespace {

__extension__ typedef unsigned __int128 uint128;

constexpr RandomKey kKey{0x123456789abcdefull, 42};

uint32_t word(uint64_t index) { return detail::philox(kKey, index / 4).v[index % 4]; }
double uniform24(uint64_t index) { return (word(index) >> 8) * 0x1p-24; }
uint64_t word64(uint64_t index) { return word(2 * index) | static_cast<uint64_t>(word(2 * index + 1)) << 32; }
double uniform53(uint64_t index) { return static_cast<double>(word64(index) >> 11) * 0x1p-53; }

// The global index of element i of a block.
uint64_t global_index(const Shape& local, const BlockOrigin& origin, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = local.rank() - 1; d >= 0; --d) {
    at += (i % local[d] + origin.offset[d]) * step;
    step *= origin.global[d];
    i /= local[d];
  }
  return static_cast<uint64_t>(at);
}

struct Block {
  Shape local;
  BlockOrigin origin;
};
const Block kBlocks[] = {{{}, {{}, {}}},
                         {{0}, {{5}, {2}}},
                         {{1}, {{9}, {6}}},
                         {{5000}, {{5000}, {0}}},
                         {{3001}, {{5000}, {1003}}},
                         {{7, 33}, {{20, 35}, {3, 1}}},
                         {{7, 3}, {{20, 6}, {3, 3}}},
                         {{9, 1}, {{9, 7}, {0, 5}}},
                         {{4, 50, 17}, {{9, 50, 17}, {5, 0, 0}}}};

double normal(uint64_t i, bool wide) {
  uint64_t first = i / 2 * 2;
  double u = wide ? uniform53(first) : uniform24(first), v = wide ? uniform53(first + 1) : uniform24(first + 1);
  double r = std::sqrt(-2 * std::log1p(-u)), angle = 2 * 3.14159265358979323846 * v;
  return i % 2 ? r * std::sin(angle) : r * std::cos(angle);
}

}  // namespace

TEST_CASE("uniform: element i is made from its words, in every block and layout") {
  for (const Block& b : kBlocks)
    for (Lie lie : kLies)
      for (DType t : kFloats) {
        Data out(t, b.local, lie);
        cpu::uniform(out.view, b.origin, kKey, -1, 3);
        for (int64_t i = 0; i < out.view.numel(); ++i) {
          uint64_t g = global_index(b.local, b.origin, i);
          double u = t == DType::f64 ? uniform53(g) : uniform24(g);
          REQUIRE(std::abs(get(out.view, i) - (-1 + 4 * u)) <= 4 * epsilon(t));
        }
      }
}

TEST_CASE("uniform: never reaches the upper end") {
  for (DType t : kFloats)
    for (double high : {1.0, 0.1, -1.0, 1024.0}) {
      Data out(t, {40000});
      double low = high - std::max(1.0, std::abs(high));
      cpu::uniform(out.view, {{40000}, {0}}, kKey, low, high);
      double least = 1e9, most = -1e9;
      for (int64_t i = 0; i < 40000; ++i) {
        least = std::min(least, get(out.view, i));
        most = std::max(most, get(out.view, i));
      }
      INFO(to_string(t), " below ", high);
      CHECK(most < high);
      CHECK(most > high - (high - low) * (0.001 + 4 * epsilon(t)));
      CHECK(least >= low - std::abs(low) * epsilon(t));
    }
}

TEST_CASE("normal: Box-Muller of the uniforms, in every block and layout") {
  for (const Block& b : kBlocks)
    for (Lie lie : kLies)
      for (DType t : kFloats) {
        Data out(t, b.local, lie);
        cpu::normal(out.view, b.origin, kKey, 1, 2);
        double error = t == DType::f64 ? 1e-14 : 2e-6 + 2 * epsilon(t);
        for (int64_t i = 0; i < out.view.numel(); ++i) {
          double want = 1 + 2 * normal(global_index(b.local, b.origin, i), t == DType::f64);
          REQUIRE(close(get(out.view, i), want, error, error));
        }
      }
}

TEST_CASE("normal: moments") {
  constexpr int64_t n = 400000;
  Data out(DType::f32, {n});
  cpu::normal(out.view, {{n}, {0}}, kKey, 0, 1);
  double m[5] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int k = 1; k <= 4; ++k) m[k] += std::pow(get(out.view, i), k) / n;
  CHECK(std::abs(m[1]) < 0.01);
  CHECK(std::abs(m[2] - 1) < 0.02);
  CHECK(std::abs(m[3]) < 0.03);
  CHECK(std::abs(m[4] - 3) < 0.08);
}

TEST_CASE("random_integers: scaled words, all dtypes, whole range") {
  for (const Block& b : kBlocks)
    for (DType t : {DType::i64, DType::i32, DType::u8}) {
      Data out(t, b.local);
      cpu::random_integers(out.view, b.origin, kKey, 5, 105);
      for (int64_t i = 0; i < out.view.numel(); ++i) {
        auto scaled = static_cast<uint128>(word64(global_index(b.local, b.origin, i))) * 100;
        REQUIRE(get(out.view, i) == 5 + static_cast<double>(static_cast<uint64_t>(scaled >> 64)));
      }
    }
  Data out(DType::i64, {1000});
  cpu::random_integers(out.view, {{1000}, {0}}, kKey, INT64_MIN, INT64_MAX);
  int negative = 0;
  for (int64_t i = 0; i < 1000; ++i) negative += get(out.view, i) < 0;
  CHECK(negative > 400);
  CHECK(negative < 600);
  CHECK_THROWS(cpu::random_integers(out.view, {{1000}, {0}}, kKey, 3, 3));
}

TEST_CASE("dropout: keeps by position and scales") {
  for (const Block& b : kBlocks)
    for (Lie lie : kLies)
      for (DType t : kFloats)
        for (double p : {0.0, 0.25, 1.0}) {
          Data x(t, b.local, lie), out(t, b.local);
          set_all(x.view, [](int64_t i) { return static_cast<double>(i % 5 + 1); });
          cpu::dropout(x.view, b.origin, kKey, p, out.view);
          for (int64_t i = 0; i < out.view.numel(); ++i) {
            bool dropped = uniform24(global_index(b.local, b.origin, i)) < p;
            REQUIRE(close(get(out.view, i), dropped ? 0 : get(x.view, i) / (1 - p), 2 * epsilon(t)));
          }
        }
}

TEST_CASE("dropout: p = 1 gives zeros even of infinities") {
  Data x(DType::f32, {100}), out(DType::f32, {100});
  set_all(x.view, [](int64_t) { return HUGE_VAL; });
  cpu::dropout(x.view, {{100}, {0}}, kKey, 1, out.view);
  for (int64_t i = 0; i < 100; ++i) CHECK(get(out.view, i) == 0);
}

TEST_CASE("random: threads change nothing") {
  constexpr int64_t n = 200001;
  Data one(DType::f32, {n}), three(DType::f32, {n});
  int before = num_threads();
  set_num_threads(1);
  cpu::normal(one.view, {{n}, {0}}, kKey, 0, 1);
  set_num_threads(3);
  cpu::normal(three.view, {{n}, {0}}, kKey, 0, 1);
  set_num_threads(before);
  CHECK(std::memcmp(one.view.data, three.view.data, n * 4) == 0);
}
