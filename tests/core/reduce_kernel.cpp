// Reductions over all choices of dims, dtypes and layouts against loops in f64.
#include <cleave/core/cpu/reduce.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include <limits>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;
using cpu::Reduce;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Reduce kKinds[] = {Reduce::sum,        Reduce::prod,    Reduce::max, Reduce::min, Reduce::sum_abs,
                             Reduce::sum_square, Reduce::max_abs, Reduce::any, Reduce::all};

double start(Reduce kind) {
  switch (kind) {
    case Reduce::prod:
    case Reduce::all:
      return 1;
    case Reduce::max:
      return -kInf;
    case Reduce::min:
      return kInf;
    default:
      return 0;
  }
}

double join(Reduce kind, double acc, double x) {
  bool nan = std::isnan(acc) || std::isnan(x);
  switch (kind) {
    case Reduce::sum:
      return acc + x;
    case Reduce::prod:
      return acc * x;
    case Reduce::max:
      return nan ? acc + x : std::max(acc, x);
    case Reduce::min:
      return nan ? acc + x : std::min(acc, x);
    case Reduce::sum_abs:
      return acc + std::abs(x);
    case Reduce::sum_square:
      return acc + x * x;
    case Reduce::max_abs:
      return nan ? acc + x : std::max(acc, std::abs(x));
    case Reduce::any:
      return acc != 0 || x != 0;
    case Reduce::all:
      return acc != 0 && x != 0;
  }
  return 0;
}

// The index into `out` (size 1 where reduced) of element i of x.
int64_t target(const Shape& x, const Shape& out, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = x.rank() - 1; d >= 0; --d) {
    if (out[d] != 1) at += i % x[d] * step;
    step *= out[d];
    i /= x[d];
  }
  return at;
}

std::vector<double> expected(Reduce kind, const View& x, const View& out) {
  std::vector<double> want(static_cast<size_t>(out.numel()), start(kind));
  for (int64_t i = 0; i < x.numel(); ++i) {
    double& w = want[static_cast<size_t>(target(x.shape, out.shape, i))];
    w = join(kind, w, get(x, i));
  }
  return want;
}

void check_reduce(Reduce kind, const View& x, const View& out) {
  std::vector<double> want = expected(kind, x, out);
  cpu::reduce(kind, x, out);
  double error = 40 * epsilon(accumulation(x.dtype)) + 1.01 * epsilon(out.dtype);
  for (int64_t i = 0; i < out.numel(); ++i) {
    INFO("kind ", static_cast<int>(kind), " of ", to_string(x.dtype), to_string(x.shape), " to ", to_string(out.shape));
    REQUIRE(close(get(out, i), want[static_cast<size_t>(i)], error, error * 20));
  }
}

}  // namespace

TEST_CASE("reduce: kinds, dims, dtypes, layouts") {
  const Shape shapes[] = {{1}, {7}, {1500}, {6, 9}, {40, 5}, {5, 40}, {3, 17, 20}, {2, 3, 4, 5}};
  for (Reduce kind : kKinds)
    for (const Shape& shape : shapes)
      for (unsigned mask = 0; mask < 1u << shape.rank(); ++mask)
        for (DType t : kAllDTypes)
          for (Lie lie : kLies) {
            Shape reduced = shape;
            for (int d = 0; d < shape.rank(); ++d)
              if (mask >> d & 1) reduced[d] = 1;
            bool predicate = kind == Reduce::any || kind == Reduce::all || t == DType::boolean;
            Data x(t, shape, lie), out(predicate ? DType::i64 : t, reduced, lie);
            set_all(x.view, [&](int64_t i) {
              if (kind == Reduce::prod) return 1.0 + (i % 400 == 0);
              if (t == DType::u8) return static_cast<double>(i % 97 == 0);
              return std::floor(4 * noise(i) + (kind == Reduce::all ? 4 : 0));
            });
            check_reduce(kind, x.view, out.view);
          }
}

TEST_CASE("reduce: long rows and many rows, where partial results are merged") {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::i32})
    for (const Shape& shape : {Shape{100003}, Shape{3, 40001}, Shape{1001, 37}, Shape{300, 5, 30}, Shape{530, 1100}}) {
      for (unsigned mask = 1; mask < 1u << shape.rank(); ++mask) {
        Shape reduced = shape;
        for (int d = 0; d < shape.rank(); ++d)
          if (mask >> d & 1) reduced[d] = 1;
        DType to = t == DType::bf16 ? DType::f32 : t == DType::i32 ? DType::i64 : t;
        Data x(t, shape), out(to, reduced);
        set_all(x.view, [](int64_t i) { return std::floor(100 * noise(i)) + 60; });
        check_reduce(Reduce::sum, x.view, out.view);
        check_reduce(Reduce::max, x.view, out.view);
      }
    }
}

TEST_CASE("reduce: nothing to reduce over gives the identity") {
  for (Reduce kind : kKinds)
    for (DType t : kAllDTypes) {
      Data x(t, {3, 0}), out(t, {3, 1});
      cpu::reduce(kind, x.view, out.view);
      double want = start(kind);
      if (!is_floating(t) && std::isinf(want)) {
        double least = t == DType::i64 ? -0x1p63 : t == DType::i32 ? -0x1p31 : 0;
        double most = t == DType::i64 ? 0x1p63 : t == DType::i32 ? 0x1p31 - 1 : t == DType::u8 ? 255 : 1;
        want = want < 0 ? least : most;
      }
      for (int64_t i = 0; i < 3; ++i) CHECK(get(out.view, i) == want);
    }
  Data x(DType::f32, {0, 3}), out(DType::f32, {0, 1});
  cpu::reduce(Reduce::sum, x.view, out.view);
}

TEST_CASE("reduce: NaN wins extrema and spoils sums") {
  for (int64_t at : {0, 1, 130, 999})
    for (Reduce kind : {Reduce::max, Reduce::min, Reduce::max_abs, Reduce::sum}) {
      Data x(DType::f32, {1000, 16}), rows(DType::f32, {1000, 1}), columns(DType::f32, {1, 16});
      set_all(x.view, [&](int64_t i) { return i == at * 16 + 3 ? std::nan("") : noise(i); });
      cpu::reduce(kind, x.view, rows.view);
      cpu::reduce(kind, x.view, columns.view);
      for (int64_t i = 0; i < 1000; ++i) CHECK(std::isnan(get(rows.view, i)) == (i == at));
      for (int64_t i = 0; i < 16; ++i) CHECK(std::isnan(get(columns.view, i)) == (i == 3));
    }
}

TEST_CASE("reduce: expanded inputs") {
  Data one(DType::f32, {1, 3}), all(DType::f32, {1, 1}), columns(DType::f32, {1, 3});
  set_all(one.view, [](int64_t i) { return static_cast<double>(i + 1); });
  View x = one.view;
  x.shape = {500, 3};
  x.strides = {0, 1};
  cpu::reduce(Reduce::sum, x, all.view);
  CHECK(get(all.view, 0) == 3000);
  cpu::reduce(Reduce::sum, x, columns.view);
  CHECK(get(columns.view, 2) == 1500);
}

TEST_CASE("reduce: sums in f32 stay accurate, and threads do not change their bits") {
  constexpr int64_t n = 3'000'000;
  Data x(DType::f32, {n}), matrix(DType::f32, {n / 100, 100});
  set_all(x.view, [](int64_t i) { return 1 + 0.1 * noise(i); });
  matrix.view.data = x.view.data;
  double exact = 0;
  for (int64_t i = 0; i < n; ++i) exact += get(x.view, i);
  int before = num_threads();
  std::vector<float> sums[3];
  for (int threads = 1; threads <= 3; ++threads) {
    set_num_threads(threads);
    Data one(DType::f32, {1}), columns(DType::f32, {1, 100}), rows(DType::f32, {n / 100, 1});
    cpu::reduce(Reduce::sum, x.view, one.view);
    cpu::reduce(Reduce::sum, matrix.view, columns.view);
    cpu::reduce(Reduce::sum, matrix.view, rows.view);
    CHECK(std::abs(get(one.view, 0) - exact) / exact < 3e-7);
    for (const Data* d : {&one, &columns, &rows})
      sums[threads - 1].insert(sums[threads - 1].end(), d->view.as<float>(), d->view.as<float>() + d->view.numel());
  }
  set_num_threads(before);
  CHECK(sums[0] == sums[1]);
  CHECK(sums[0] == sums[2]);
}
