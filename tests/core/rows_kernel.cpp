// Softmax, norms and the cross-entropy sums against plain loops in double, and their gradients against differences.
#include <cleave/core/cpu/rows.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const Shape kShapes[] = {{1},      {37},       {1100}, {4, 9}, {3, 1, 5},    {5, 300},
                         {300, 5}, {2, 13, 7}, {3, 0}, {0, 3}, {2, 2, 2, 17}};

// Calls f(element indices of a row along dim, row number).
template <class F>
void each_row(const Shape& shape, int dim, const F& f) {
  int64_t inner = 1, n = shape[dim];
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  for (int64_t r = 0; n > 0 && r < numel(shape) / n; ++r) {
    std::vector<int64_t> row;
    for (int64_t k = 0; k < n; ++k) row.push_back((r / inner * n + k) * inner + r % inner);
    f(row, r);
  }
}

double log_sum_exp(const View& x, const std::vector<int64_t>& row) {
  double top = -kInf, sum = 0;
  for (int64_t i : row) top = std::max(top, get(x, i));
  if (top == -kInf) return top;
  for (int64_t i : row) sum += std::exp(get(x, i) - top);
  return top + std::log(sum);
}

Shape with_one(Shape shape, int dim) {
  shape[dim] = 1;
  return shape;
}

// f32 computations lose about this much; halves lose their last rounding.
double tolerance(DType t) { return t == DType::f64 ? 1e-13 : 3e-6 + 2 * epsilon(t); }
DType wide(DType t) { return t == DType::f64 ? t : DType::f32; }

// The gradient of f() by x, by central differences.
void check_gradient(const View& x, const View& dx, const std::function<double()>& f, double tolerance = 1e-7) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    double was = get(x, i), h = 1e-5;
    set(x, i, was + h);
    double up = f();
    set(x, i, was - h);
    double down = f();
    set(x, i, was);
    CHECK(get(dx, i) == doctest::Approx((up - down) / (2 * h)).epsilon(tolerance).scale(1));
  }
}

double weighted_sum(const View& y) {
  double sum = 0;
  for (int64_t i = 0; i < y.numel(); ++i) sum += noise(i + 31) * get(y, i);
  return sum;
}

}  // namespace

TEST_CASE("softmax and its logarithm: dtypes, layouts, dims") {
  for (DType t : kFloats)
    for (const Shape& shape : kShapes)
      for (Lie lie : kLies)
        for (int dim = 0; dim < shape.rank(); ++dim) {
          Data x(t, shape, lie), y(t, shape), z(t, shape, lie), sum(t, with_one(shape, dim));
          set_all(x.view, [](int64_t i) { return 20 * noise(i); });
          cpu::softmax(x.view, dim, false, y.view);
          cpu::softmax(x.view, dim, true, z.view);
          cpu::logsumexp(x.view, dim, sum.view);
          int64_t wrong = 0;
          each_row(shape, dim, [&](const std::vector<int64_t>& row, int64_t r) {
            double l = log_sum_exp(x.view, row);
            wrong += !close(get(sum.view, r), l, tolerance(t));
            for (int64_t i : row) {
              wrong += !close(get(z.view, i), get(x.view, i) - l, tolerance(t), tolerance(wide(t)) * 10);
              wrong +=
                  !close(get(y.view, i), std::exp(get(x.view, i) - l), 10 * tolerance(t), t == DType::f16 ? 6e-8 : 0);
            }
          });
          CAPTURE(to_string(shape));
          CAPTURE(dim);
          CAPTURE(std::string(to_string(t)));
          CHECK(wrong == 0);
        }
}

TEST_CASE("softmax: infinities, NaN, far apart and long rows") {
  for (DType t : {DType::f32, DType::f64})
    for (int64_t n : {1, 3, 40}) {
      Data x(t, {n}), y(t, {n}), l(t, {1});
      set_all(x.view, [&](int64_t i) { return i == n - 1 ? 3.0 : -kInf; });
      cpu::softmax(x.view, 0, false, y.view);
      cpu::logsumexp(x.view, 0, l.view);
      for (int64_t i = 0; i < n; ++i) CHECK(get(y.view, i) == (i == n - 1 ? 1.0 : 0.0));
      CHECK(get(l.view, 0) == 3.0);

      set_all(x.view, [](int64_t) { return -kInf; });
      cpu::softmax(x.view, 0, false, y.view);
      cpu::logsumexp(x.view, 0, l.view);
      CHECK(std::isnan(get(y.view, 0)));
      CHECK(get(l.view, 0) == -kInf);

      set_all(x.view, [&](int64_t i) { return i == n / 2 ? kInf : 1.0; });
      cpu::logsumexp(x.view, 0, l.view);
      CHECK(get(l.view, 0) == kInf);

      for (double rest : {1.0, -kInf, kInf}) {
        set_all(x.view, [&](int64_t i) { return i == n / 2 ? std::nan("") : rest; });
        cpu::softmax(x.view, 0, false, y.view);
        cpu::logsumexp(x.view, 0, l.view);
        CHECK(std::isnan(get(y.view, n - 1)));
        CHECK(std::isnan(get(l.view, 0)));
      }
      set_all(x.view, [&](int64_t i) { return i == 0 ? 1000.0 : -1000.0; });
      cpu::softmax(x.view, 0, true, y.view);
      CHECK(get(y.view, n - 1) == (n == 1 ? 0.0 : -2000.0));
    }
  Data all_ones(DType::f32, {100'003}), out(DType::f32, {1}), empty(DType::f32, {2, 0}), none(DType::f32, {2, 1});
  set_all(all_ones.view, [](int64_t) { return 1.0; });
  cpu::logsumexp(all_ones.view, 0, out.view);
  CHECK(get(out.view, 0) == doctest::Approx(1 + std::log(100'003)).epsilon(1e-7));
  cpu::logsumexp(empty.view, 1, none.view);
  CHECK(get(none.view, 1) == -kInf);
}

TEST_CASE("softmax: gradients against differences, and the same in every dtype and layout") {
  for (bool log : {false, true}) {
    for (int dim : {0, 1, 2}) {
      Data x(DType::f64, {3, 4, 5}), y(DType::f64, {3, 4, 5}), dy(DType::f64, {3, 4, 5}), dx(DType::f64, {3, 4, 5});
      set_all(x.view, [](int64_t i) { return 2 * noise(i); });
      set_all(dy.view, [](int64_t i) { return noise(i + 31); });
      auto f = [&] {
        cpu::softmax(x.view, dim, log, y.view);
        return weighted_sum(y.view);
      };
      f();
      cpu::softmax_backward(y.view, dy.view, dim, log, dx.view);
      check_gradient(x.view, dx.view, f);
    }
    for (DType t : {DType::f32, DType::bf16, DType::f16})
      for (Lie lie : kLies) {
        Data y(t, {6, 40}, lie), dy(t, {6, 40}), dx(t, {6, 40}, lie), wy(DType::f64, {6, 40}), wdx(DType::f64, {6, 40});
        set_all(y.view, [&](int64_t i) { return log ? -4 - noise(i) : 0.03 + 0.02 * noise(i); });
        set_all(dy.view, [](int64_t i) { return noise(i + 9); });
        Data wdy(DType::f64, {6, 40});
        set_all(wy.view, [&](int64_t i) { return get(y.view, i); });
        set_all(wdy.view, [&](int64_t i) { return get(dy.view, i); });
        cpu::softmax_backward(y.view, dy.view, 1, log, dx.view);
        cpu::softmax_backward(wy.view, wdy.view, 1, log, wdx.view);
        for (int64_t i = 0; i < 240; ++i) CHECK(close(get(dx.view, i), get(wdx.view, i), 2 * epsilon(t), 1e-6));
      }
  }
}

TEST_CASE("layer norm and RMS norm: dtypes, layouts, one and two normalised dims") {
  for (DType t : kFloats)
    for (const Shape& shape : kShapes)
      for (Lie lie : kLies)
        for (int dims = 1; dims <= std::min(2, shape.rank()); ++dims)
          for (int parts = 0; parts < 4; ++parts) {
            Shape inner, outer = shape;
            outer.resize(shape.rank() - dims);
            for (int d = shape.rank() - dims; d < shape.rank(); ++d) inner.push_back(shape[d]);
            int64_t n = numel(inner), rows = numel(outer);
            Data x(t, shape, lie), y(t, shape, lie), z(t, shape), w(t, inner, lie), b(wide(t), inner);
            Data mean(wide(t), outer), rstd(wide(t), outer), rms(wide(t), outer);
            set_all(x.view, [](int64_t i) { return 3 + noise(i); });
            set_all(w.view, [](int64_t i) { return 1 + 0.5 * noise(i + 3); });
            set_all(b.view, [](int64_t i) { return noise(i + 4); });
            const View *weight = parts & 1 ? &w.view : nullptr, *bias = parts & 2 ? &b.view : nullptr;
            cpu::layer_norm(x.view, weight, bias, dims, 1e-5, y.view, mean.view, rstd.view);
            cpu::rms_norm(x.view, weight, dims, 1e-5, z.view, rms.view);
            int64_t wrong = 0;
            for (int64_t r = 0; r < rows && n > 0; ++r) {
              double m = 0, v = 0, s = 0;
              for (int64_t i = 0; i < n; ++i) m += get(x.view, r * n + i) / double(n);
              for (int64_t i = 0; i < n; ++i) v += std::pow(get(x.view, r * n + i) - m, 2) / double(n);
              for (int64_t i = 0; i < n; ++i) s += std::pow(get(x.view, r * n + i), 2) / double(n);
              double scale = 1 / std::sqrt(v + 1e-5), rms_scale = 1 / std::sqrt(s + 1e-5);
              wrong += !close(get(mean.view, r), m, tolerance(wide(t)));
              wrong += !close(get(rstd.view, r), scale, 20 * tolerance(wide(t)));
              wrong += !close(get(rms.view, r), rms_scale, tolerance(wide(t)));
              for (int64_t i = 0; i < n; ++i) {
                double g = weight ? get(w.view, i) : 1, x0 = get(x.view, r * n + i);
                double want = (x0 - m) * scale * g + (bias ? get(b.view, i) : 0);
                wrong += !close(get(y.view, r * n + i), want, 2 * tolerance(t), tolerance(wide(t)) * scale * 10);
                wrong += !close(get(z.view, r * n + i), x0 * rms_scale * g, 2 * tolerance(t));
              }
            }
            CAPTURE(to_string(shape));
            CAPTURE(std::string(to_string(t)));
            CHECK(wrong == 0);
          }
}

TEST_CASE("norms: gradients against differences, with any of them left out") {
  Shape shape{5, 3, 4}, inner{3, 4}, outer{5};
  Data x(DType::f64, shape, Lie::reversed), y(DType::f64, shape), w(DType::f64, inner), b(DType::f64, inner);
  Data mean(DType::f64, outer), rstd(DType::f64, outer), dy(DType::f64, shape), dx(DType::f64, shape, Lie::strided);
  Data dw(DType::f64, inner), db(DType::f64, inner);
  set_all(x.view, [](int64_t i) { return noise(i); });
  set_all(w.view, [](int64_t i) { return 1 + noise(i + 3); });
  set_all(b.view, [](int64_t i) { return noise(i + 4); });
  set_all(dy.view, [](int64_t i) { return noise(i + 31); });
  for (bool weighted : {true, false}) {
    const View* weight = weighted ? &w.view : nullptr;
    auto layer = [&] {
      cpu::layer_norm(x.view, weight, weighted ? &b.view : nullptr, 2, 1e-3, y.view, mean.view, rstd.view);
      return weighted_sum(y.view);
    };
    layer();
    cpu::layer_norm_backward(x.view, weight, mean.view, rstd.view, dy.view, 2, &dx.view, nullptr, nullptr);
    if (weighted)
      cpu::layer_norm_backward(x.view, weight, mean.view, rstd.view, dy.view, 2, nullptr, &dw.view, &db.view);
    check_gradient(x.view, dx.view, layer);
    if (weighted) check_gradient(w.view, dw.view, layer);
    if (weighted) check_gradient(b.view, db.view, layer);
    auto rms = [&] {
      cpu::rms_norm(x.view, weight, 2, 1e-3, y.view, rstd.view);
      return weighted_sum(y.view);
    };
    rms();
    cpu::rms_norm_backward(x.view, weight, rstd.view, dy.view, 2, &dx.view, weighted ? &dw.view : nullptr);
    check_gradient(x.view, dx.view, rms);
    if (weighted) check_gradient(w.view, dw.view, rms);
  }
}

TEST_CASE("layer norm: gradients of many rows are the same bits for any number of threads, and zero for none") {
  int before = num_threads();
  std::vector<unsigned char> first;
  for (int threads : {1, 2}) {
    set_num_threads(threads);
    Data x(DType::f32, {1000, 70}), dy(DType::f32, {1000, 70}), dx(DType::f32, {1000, 70}), mean(DType::f32, {1000});
    Data rstd(DType::f32, {1000}), dw(DType::f32, {70}), db(DType::f32, {70}), w(DType::f32, {70});
    set_all(x.view, [](int64_t i) { return noise(i); });
    set_all(dy.view, [](int64_t i) { return noise(i + 5); });
    set_all(w.view, [](int64_t) { return 1.0; });
    set_all(mean.view, [](int64_t i) { return 0.1 * noise(i); });
    set_all(rstd.view, [](int64_t i) { return 1.5 + noise(i); });
    cpu::layer_norm_backward(x.view, &w.view, mean.view, rstd.view, dy.view, 1, &dx.view, &dw.view, &db.view);
    for (int64_t c : {0, 69}) {
      double sum = 0;
      for (int64_t r = 0; r < 1000; ++r) sum += get(dy.view, r * 70 + c);
      CHECK(get(db.view, c) == doctest::Approx(sum).epsilon(1e-5));
    }
    if (first.empty()) first = dw.bytes;
    CHECK(first == dw.bytes);
  }
  set_num_threads(before);
  Data x(DType::bf16, {0, 6}), none(DType::f32, {0}), dw(DType::bf16, {6}), db(DType::f32, {6}), w(DType::bf16, {6});
  cpu::layer_norm_backward(x.view, &w.view, none.view, none.view, x.view, 1, &x.view, &dw.view, &db.view);
  for (int64_t i = 0; i < 6; ++i) CHECK(get(dw.view, i) + get(db.view, i) == 0);
}

TEST_CASE("cross-entropy: sums over a block of classes along any dim") {
  for (DType t : kFloats)
    for (Lie lie : kLies)
      for (int dim : {0, 1, 2})
        for (DType index : {DType::i64, DType::i32})
          for (int64_t rows : {2, 3}) {
            Shape shape{5, 6, 7}, outer = shape;
            outer.erase(dim);
            Shape terms_shape = outer;
            terms_shape.insert(0, rows);
            int64_t n = shape[dim], first = 10;
            Data x(t, shape, lie), shift(wide(t), with_one(shape, dim)), target(index, outer),
                terms(wide(t), terms_shape);
            set_all(x.view, [](int64_t i) { return 5 * noise(i); });
            set_all(shift.view, [](int64_t i) { return 4 + noise(i); });
            set_all(target.view, [&](int64_t i) { return double(i % 5 == 0 ? -100 : first - 2 + i % (n + 4)); });
            cpu::cross_entropy_terms(x.view, shift.view, target.view, dim, first, terms.view);
            int64_t count = numel(outer), wrong = 0;
            each_row(shape, dim, [&](const std::vector<int64_t>& row, int64_t r) {
              double sum = 0, all = 0, at = get(target.view, r) - double(first);
              for (int64_t i : row) sum += std::exp(get(x.view, i) - get(shift.view, r));
              for (int64_t i : row) all += get(x.view, i);
              double own = at >= 0 && at < double(n) ? get(x.view, row[size_t(at)]) : 0;
              wrong += !close(get(terms.view, r), sum, 10 * tolerance(wide(t)));
              wrong += get(terms.view, count + r) != own;
              if (rows == 3) wrong += !close(get(terms.view, 2 * count + r), all, 0, 50 * tolerance(wide(t)));
            });
            CHECK(wrong == 0);
          }
}

TEST_CASE("cross-entropy: gradients against differences, and with classes along a transposed dim") {
  for (int64_t rows : {2, 3}) {
    Data x(DType::f64, {2, 6, 4}, Lie::reversed), shift(DType::f64, {2, 1, 4}), target(DType::i64, {2, 4});
    Data terms(DType::f64, {rows, 2, 4}), dterms(DType::f64, {rows, 2, 4}), dx(DType::f64, {2, 6, 4}, Lie::gaps);
    set_all(x.view, [](int64_t i) { return noise(i); });
    set_all(shift.view, [](int64_t i) { return 1 + noise(i); });
    set_all(target.view, [](int64_t i) { return double(i); });  // 0 to 7, of which the block holds 1 to 6
    set_all(dterms.view, [](int64_t i) { return noise(i + 31); });
    auto f = [&] {
      cpu::cross_entropy_terms(x.view, shift.view, target.view, 1, 1, terms.view);
      return weighted_sum(terms.view);
    };
    cpu::cross_entropy_terms_backward(x.view, shift.view, target.view, dterms.view, 1, 1, dx.view);
    check_gradient(x.view, dx.view, f);
  }
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {  // [B, V, T] as a view of dense [B, T, V]
    Data x(t, {2, 5, 40}), dx(t, {2, 5, 40}), shift(DType::f32, {2, 1, 5}), target(DType::i32, {2, 5}),
        d(DType::f32, {2, 2, 5});
    set_all(x.view, [](int64_t i) { return noise(i); });
    set_all(shift.view, [](int64_t) { return 1.0; });
    set_all(target.view, [](int64_t i) { return double(3 * i); });
    set_all(d.view, [](int64_t i) { return noise(i); });
    auto turned = [](View v) {
      v.shape = {2, 40, 5};
      v.strides = {200, 1, 40};
      return v;
    };
    cpu::cross_entropy_terms_backward(turned(x.view), shift.view, target.view, d.view, 1, 0, turned(dx.view));
    for (int64_t i = 0; i < 400; ++i) {
      int64_t r = i / 40, c = i % 40;
      double want = get(d.view, r) * std::exp(get(x.view, i) - 1) + (c == 3 * r ? get(d.view, 10 + r) : 0);
      CHECK(close(get(dx.view, i), want, 2 * epsilon(t) + 1e-6, 1e-6));
    }
  }
}
