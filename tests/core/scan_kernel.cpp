// Extrema by index, running sums and sorting along any dim.
#include <cleave/core/cpu/reduce.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

const Shape kShapes[] = {{1}, {37}, {2500}, {4, 9}, {3, 1, 5}, {6, 1100}, {1100, 3}, {2, 13, 7}};

// Calls f(indices of a row along dim, index of the row in a view with size 1 there).
template <class F>
void each_row(const Shape& shape, int dim, const F& f) {
  int64_t inner = 1, n = shape[dim];
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  for (int64_t r = 0; r < numel(shape) / n; ++r) {
    std::vector<int64_t> row;
    for (int64_t k = 0; k < n; ++k) row.push_back((r / inner * n + k) * inner + r % inner);
    f(row, r);
  }
}

double value(DType t, int64_t i) {
  if (is_floating(t) && i % 211 == 17) return std::nan("");
  return std::floor(is_floating(t) ? 6 * noise(i) : 3 * noise(i) + 3);  // with many ties
}

template <class F>
void each_case(const F& f) {
  for (const Shape& shape : kShapes)
    for (int dim = 0; dim < shape.rank(); ++dim)
      for (DType t : kAllDTypes)
        for (Lie lie : kLies) {
          Data x(t, shape, lie);
          set_all(x.view, [t](int64_t i) { return value(t, i); });
          f(x.view, dim, lie);
        }
}

// NaN counts as the largest.
bool less(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

}  // namespace

TEST_CASE("arg_extremum: the first of the largest and smallest, NaN before all") {
  each_case([](const View& x, int dim, Lie lie) {
    Shape one = x.shape;
    one[dim] = 1;
    for (bool largest : {true, false}) {
      Data out(DType::i64, one, lie);
      cpu::arg_extremum(largest, x, dim, out.view);
      each_row(x.shape, dim, [&](const std::vector<int64_t>& row, int64_t r) {
        int64_t best = 0;
        for (size_t k = 1; k < row.size(); ++k) {
          double now = get(x, row[k]), old = get(x, row[static_cast<size_t>(best)]);
          bool better = std::isnan(now) ? !std::isnan(old) : largest ? now > old : now < old;
          if (better) best = static_cast<int64_t>(k);
        }
        REQUIRE(get(out.view, r) == static_cast<double>(best));
      });
    }
  });
}

TEST_CASE("cumsum: running sums along a dim") {
  each_case([](const View& x, int dim, Lie lie) {
    DType t = x.dtype == DType::boolean || x.dtype == DType::u8 ? DType::i64 : x.dtype;
    Data out(t, x.shape, lie);
    cpu::cumsum(x, dim, out.view);
    each_row(x.shape, dim, [&](const std::vector<int64_t>& row, int64_t) {
      double sum = 0;
      for (int64_t i : row) {
        sum += get(x, i);
        REQUIRE(close(get(out.view, i), sum, 1.01 * epsilon(t)));
      }
    });
  });
}

TEST_CASE("sort: stable, both ways, NaN as the largest") {
  each_case([](const View& x, int dim, Lie lie) {
    for (bool descending : {false, true}) {
      Data values(x.dtype, x.shape, lie), indices(DType::i64, x.shape, lie);
      cpu::sort(descending, x, dim, values.view, indices.view);
      each_row(x.shape, dim, [&](const std::vector<int64_t>& row, int64_t) {
        std::vector<int64_t> order(row.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          double u = get(x, row[static_cast<size_t>(a)]), v = get(x, row[static_cast<size_t>(b)]);
          return descending ? less(v, u) : less(u, v);
        });
        for (size_t k = 0; k < row.size(); ++k) {
          REQUIRE(get(indices.view, row[k]) == static_cast<double>(order[k]));
          REQUIRE(close(get(values.view, row[k]), get(x, row[static_cast<size_t>(order[k])]), 0));
        }
      });
    }
  });
}

TEST_CASE("arg_extremum, cumsum, sort: nothing to do") {
  Data x(DType::f32, {0, 3}), same(DType::f32, {0, 3}), index(DType::i64, {0, 3}), one(DType::i64, {0, 1});
  cpu::arg_extremum(true, x.view, 1, one.view);
  cpu::cumsum(x.view, 0, same.view);
  cpu::sort(false, x.view, 0, same.view, index.view);
}

TEST_CASE("arg_extremum: integers beyond 2^53 are told apart") {
  int64_t v[] = {int64_t{1} << 60, (int64_t{1} << 60) + 1, 0}, at = -1;
  View x{v, DType::i64, {3}, {1}}, out{&at, DType::i64, {1}, {1}};
  cpu::arg_extremum(true, x, 0, out);
  CHECK(at == 1);
}
