// Products of matrices against plain loops in double: batches, transposes, strides, dtypes, empty sizes.
#include <cleave/core/cpu/gemm_bf16.h>
#include <cleave/core/cpu/gemm_blocks.h>
#include <cleave/core/cpu/matmul.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

View swapped(View v) {
  int r = v.rank();
  std::swap(v.shape[r - 1], v.shape[r - 2]);
  std::swap(v.strides[r - 1], v.strides[r - 2]);
  return v;
}

double value(DType t, int64_t i) {
  return is_floating(t) ? noise(i) : std::floor(noise(i) * 5) + (t == DType::u8 ? 5 : 0);
}

// The index in x of element (batch, row, col) of the output's batch, with broadcast batch dims.
int64_t index_in(const View& x, const Shape& out, int64_t batch, int64_t row, int64_t col) {
  int r = x.rank(), o = out.rank();
  int64_t index = 0, step = x.shape[r - 1] * x.shape[r - 2];
  for (int d = o - 3; d >= 0; --d) {
    int64_t at = batch % out[d];
    batch /= out[d];
    int mine = d - (o - r);
    if (mine < 0) continue;
    if (x.shape[mine] != 1) index += at * step;
    step *= x.shape[mine];
  }
  return index + row * x.shape[r - 1] + col;
}

void check_matmul(const View& a, const View& b, const Shape& shape) {
  Data out(a.dtype, shape);
  cpu::matmul(a, b, out.view);
  int64_t m = shape[shape.rank() - 2], n = shape.back(), k = a.shape.back(), wrong = 0;
  for (int64_t i = 0; i < numel(shape); ++i) {
    double sum = 0, size = 0;
    for (int64_t p = 0; p < k; ++p) {
      double x = get(a, index_in(a, shape, i / (m * n), i / n % m, p));
      double y = get(b, index_in(b, shape, i / (m * n), p, i % n));
      sum += x * y;
      size += std::abs(x * y);
    }
    double loss = is_half(a.dtype) ? epsilon(DType::f32) : epsilon(a.dtype);
    if (a.dtype == DType::u8) sum = static_cast<uint8_t>(static_cast<int64_t>(sum));
    if (a.dtype == DType::boolean) sum = sum != 0;
    wrong += !close(get(out.view, i), sum, 2 * epsilon(a.dtype), 8 * loss * size);
  }
  CAPTURE(to_string(a.shape));
  CAPTURE(to_string(b.shape));
  CAPTURE(to_string(a.strides));
  CAPTURE(to_string(b.strides));
  CAPTURE(std::string(to_string(a.dtype)));
  CHECK(wrong == 0);
}

struct Case {
  Shape a, b, out;
};
const Case kCases[] = {
    {{3, 5}, {5, 7}, {3, 7}},
    {{1, 1}, {1, 1}, {1, 1}},
    {{33, 300}, {300, 50}, {33, 50}},
    {{97, 2}, {2, 101}, {97, 101}},
    {{1, 64}, {64, 9}, {1, 9}},
    {{9, 64}, {64, 1}, {9, 1}},
    {{4, 3, 5}, {5, 6}, {4, 3, 6}},
    {{4, 1, 5}, {5, 6}, {4, 1, 6}},
    {{4, 3, 5}, {4, 5, 6}, {4, 3, 6}},
    {{3, 5}, {4, 5, 6}, {4, 3, 6}},
    {{2, 1, 3, 5}, {4, 5, 6}, {2, 4, 3, 6}},
    {{2, 4, 3, 5}, {2, 1, 5, 6}, {2, 4, 3, 6}},
    {{2, 0, 5}, {5, 3}, {2, 0, 3}},
    {{0, 2, 5}, {0, 5, 3}, {0, 2, 3}},
};

}  // namespace

TEST_CASE("matmul: every dtype, batch and layout in memory") {
  for (DType t : kAllDTypes)
    for (const Case& c : kCases)
      for (Lie la : kLies)
        for (Lie lb : kLies) {
          if (numel(c.out) > 1000 && la != lb && is_half(t)) continue;
          Data a(t, c.a, la), b(t, c.b, lb);
          set_all(a.view, [&](int64_t i) { return value(t, i); });
          set_all(b.view, [&](int64_t i) { return value(t, i + 999); });
          check_matmul(a.view, b.view, c.out);
        }
}

TEST_CASE("matmul: transposed operands and parts of larger tensors") {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::i32}) {
    Data a(t, {3, 20, 30}), b(t, {3, 40, 30});
    set_all(a.view, [&](int64_t i) { return value(t, i); });
    set_all(b.view, [&](int64_t i) { return value(t, i + 7); });
    check_matmul(a.view, swapped(b.view), {3, 20, 40});
    View part = a.view;
    part.shape = {3, 20, 10};
    part.data = a.view.as<char>() + 5 * size_of(t);
    View other = b.view;
    other.shape = {3, 17, 10};
    check_matmul(part, swapped(other), {3, 20, 17});
    check_matmul(swapped(part), part, {3, 10, 10});
  }
}

TEST_CASE("matmul: expanded operands") {
  for (DType t : {DType::f32, DType::f64, DType::i64}) {
    Data a(t, {5}), b(t, {4, 6});
    set_all(a.view, [&](int64_t i) { return value(t, i); });
    set_all(b.view, [&](int64_t i) { return value(t, i + 7); });
    View rows = a.view;  // the same row three times
    rows.shape = {3, 4};
    rows.strides = {0, 1};
    check_matmul(rows, b.view, {3, 6});
    View batch = b.view;
    batch.shape = {7, 4, 6};
    batch.strides = {0, 6, 1};
    check_matmul(rows, batch, {7, 3, 6});
    View one = a.view;
    one.shape = {7, 3, 4};
    one.strides = {0, 0, 0};
    check_matmul(one, batch, {7, 3, 6});
  }
}

TEST_CASE("matmul: a contracted size of 0 gives zeros, whatever lay in the output") {
  for (DType t : kAllDTypes) {
    Data a(t, {2, 3, 0}), b(t, {2, 0, 4}), out(t, {2, 3, 4});
    cpu::matmul(a.view, b.view, out.view);
    for (int64_t i = 0; i < 24; ++i) CHECK(get(out.view, i) == 0);
    Data x(t, {3, 0}), w(t, {4, 0}), bias(t, {4}), y(t, {3, 4});
    set_all(bias.view, [](int64_t i) { return double(i % 2); });
    cpu::linear(x.view, w.view, &bias.view, y.view);
    for (int64_t i = 0; i < 12; ++i) CHECK(get(y.view, i) == double(i % 2));
  }
}

TEST_CASE("matmul: integers are exact beyond 53 bits") {
  Data a(DType::i64, {1, 2}), b(DType::i64, {2, 1}), out(DType::i64, {1, 1});
  a.view.as<int64_t>()[0] = (int64_t{1} << 53) + 1;
  a.view.as<int64_t>()[1] = 1;
  b.view.as<int64_t>()[0] = 3;
  b.view.as<int64_t>()[1] = 1;
  cpu::matmul(a.view, b.view, out.view);
  CHECK(out.view.as<int64_t>()[0] == 3 * ((int64_t{1} << 53) + 1) + 1);
}

TEST_CASE("linear: with and without bias") {
  for (DType t : kFloats)
    for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {130, 33, 65}, {0, 4, 4}})
      for (bool with_bias : {false, true}) {
        Data x(t, {m, k}), w(t, {n, k}), bias(t, {n}), out(t, {m, n});
        set_all(x.view, [&](int64_t i) { return noise(i); });
        set_all(w.view, [&](int64_t i) { return noise(i + 77); });
        set_all(bias.view, [&](int64_t i) { return noise(i + 177); });
        cpu::linear(x.view, w.view, with_bias ? &bias.view : nullptr, out.view);
        int64_t wrong = 0;
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = with_bias ? get(bias.view, i % n) : 0;
          for (int64_t p = 0; p < k; ++p) sum += get(x.view, i / n * k + p) * get(w.view, i % n * k + p);
          wrong +=
              !close(get(out.view, i), sum, 2 * epsilon(t), 8 * double(k) * std::min(epsilon(t), epsilon(DType::f32)));
        }
        CHECK(wrong == 0);
      }
}

TEST_CASE("gemm: alpha, beta and leading strides; beta = 0 reads nothing") {
  for (int mode = 0; mode < 8; ++mode) {
    bool ta = mode & 1, tb = mode & 2;
    double beta = mode & 4 ? 0.5 : 0;
    int64_t m = 13, n = 21, k = 270, ld = 300;
    Data a(DType::f64, {ld, ld}), b(DType::f64, {ld, ld}), c(DType::f64, {m, 40});
    Data a4(DType::f32, {ld, ld}), b4(DType::f32, {ld, ld}), c4(DType::f32, {m, 40});
    for (auto* v : {&a, &a4}) set_all(v->view, [](int64_t i) { return noise(i); });
    for (auto* v : {&b, &b4}) set_all(v->view, [](int64_t i) { return noise(i + 5); });
    if (beta != 0)
      for (auto* v : {&c, &c4}) set_all(v->view, [](int64_t i) { return noise(i + 9); });
    cpu::gemm(ta, tb, m, n, k, 1.5, a.view.as<double>(), ld, b.view.as<double>(), ld, beta, c.view.as<double>(), 40);
    cpu::gemm(ta, tb, m, n, k, 1.5f, a4.view.as<float>(), ld, b4.view.as<float>(), ld, static_cast<float>(beta),
              c4.view.as<float>(), 40);
    int64_t wrong = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = beta * noise(i * 40 + j + 9);
        for (int64_t p = 0; p < k; ++p)
          sum += 1.5 * noise(ta ? p * ld + i : i * ld + p) * noise((tb ? j * ld + p : p * ld + j) + 5);
        wrong += !close(get(c.view, i * 40 + j), sum, 0, 1e-12) + !close(get(c4.view, i * 40 + j), sum, 0, 6e-5);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("gemm_bf16: both orders, bias, both results, also where matmul does not use it") {
  for (int mode = 0; mode < 16; ++mode) {
    bool ta = mode & 1, tb = mode & 2, with_bias = mode & 4, half = mode & 8;
    int64_t m = 13, n = 21, k = 70, ld = 80;
    DType t = half ? DType::bf16 : DType::f32;
    Data a(DType::bf16, {ld, ld}), b(DType::bf16, {ld, ld}), bias(t, {n}), c(t, {m, n});
    set_all(a.view, [](int64_t i) { return noise(i); });
    set_all(b.view, [](int64_t i) { return noise(i + 5); });
    set_all(bias.view, [](int64_t i) { return noise(i + 7); });
    for (int again = 0; again < 2; ++again) {
      if (!cpu::gemm_bf16(m, n, k, {a.view.data, DType::bf16, ld, ta}, {b.view.data, DType::bf16, ld, tb},
                          with_bias ? bias.view.data : nullptr, half, c.view.data)) {
        MESSAGE("no bf16 products here");
        return;
      }
      int64_t wrong = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = with_bias ? get(bias.view, i % n) : 0;
        for (int64_t p = 0; p < k; ++p)
          sum += get(a.view, ta ? p * ld + i / n : i / n * ld + p) * get(b.view, tb ? i % n * ld + p : p * ld + i % n);
        wrong += !close(get(c.view, i), sum, 2 * epsilon(t), 2e-5);
      }
      CHECK(wrong == 0);
      set_all(a.view, [](int64_t i) { return noise(i + 50); });
    }
  }
}

TEST_CASE("gemm_blocks: every mix of dtypes, both orders, across its blocks") {
  struct Sizes {
    int64_t m, n, k;
  };
  const DType types[] = {DType::f32, DType::bf16, DType::f16};
  for (auto [m, n, k] : {Sizes{13, 21, 70}, {1030, 5, 7}, {3, 4, 2060}, {1025, 2, 515}, {5, 3, 0}, {1, 1, 1}})
    for (int mode = 0; mode < 72; ++mode) {
      bool ta = mode & 1, tb = mode & 2, with_bias = mode & 4;
      DType in = types[mode / 8 % 3], to = types[mode / 24];
      int64_t lda = (ta ? m : k) + 3, ldb = tb ? k + 1 : n + 2;
      Data a(in, {ta ? k : m, lda}), b(in, {tb ? n : k, ldb}), bias(in, {n}), c(to, {m, n});
      set_all(a.view, [](int64_t i) { return noise(i); });
      set_all(b.view, [](int64_t i) { return noise(i + 5); });
      set_all(bias.view, [](int64_t i) { return noise(i + 7); });
      cpu::gemm_blocks(m, n, k, {a.view.data, in, lda, ta}, {b.view.data, in, ldb, tb},
                       with_bias ? bias.view.data : nullptr, in, to, c.view.data);
      int64_t wrong = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = with_bias ? get(bias.view, i % n) : 0;
        for (int64_t p = 0; p < k; ++p)
          sum +=
              get(a.view, ta ? p * lda + i / n : i / n * lda + p) * get(b.view, tb ? i % n * ldb + p : p * ldb + i % n);
        wrong += !close(get(c.view, i), sum, 2 * epsilon(to), 2e-5 * std::sqrt(1.0 + static_cast<double>(k)));
      }
      CAPTURE(m);
      CAPTURE(mode);
      CHECK(wrong == 0);
    }
}

TEST_CASE("matmul: products of halves are exact in f32, also of transposed and broadcast operands") {
  for (DType t : {DType::bf16, DType::f16}) {
    Data a(t, {3, 40, 6}), b(t, {6, 50}), out(DType::f32, {3, 40, 50}), back(DType::f32, {6, 50});
    set_all(a.view, [](int64_t i) { return noise(i); });
    set_all(b.view, [](int64_t i) { return noise(i + 5); });
    cpu::matmul(a.view, b.view, out.view);
    View rows = a.view, cotangent = out.view;
    rows.shape = {120, 6};
    rows.strides = {6, 1};
    Data g(t, {120, 50});
    set_all(g.view, [](int64_t i) { return noise(i + 9); });
    cpu::matmul(swapped(rows), g.view, back.view);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 120 * 50; ++i) {
      double sum = 0;
      for (int64_t p = 0; p < 6; ++p) sum += get(a.view, i / 50 * 6 + p) * get(b.view, p * 50 + i % 50);
      wrong += !close(get(cotangent, i), sum, 1e-6, 1e-6);
    }
    for (int64_t i = 0; i < 6 * 50; ++i) {
      double sum = 0;
      for (int64_t p = 0; p < 120; ++p) sum += get(a.view, p * 6 + i / 50) * get(g.view, p * 50 + i % 50);
      wrong += !close(get(back.view, i), sum, 1e-5, 1e-5);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("matmul: a transposed operand whose columns share cache sets") {
  int64_t k = 20, m = 2048, n = 3;
  Data a(DType::f32, {k, m}), b(DType::f32, {k, n});
  set_all(a.view, [](int64_t i) { return noise(i); });
  set_all(b.view, [](int64_t i) { return noise(i + 5); });
  REQUIRE(cpu::columns_collide(m, m));
  check_matmul(swapped(a.view), b.view, {m, n});
}

TEST_CASE("matmul: f64 and batched f32 do not depend on the number of threads") {
  int before = num_threads();
  for (DType t : {DType::f64, DType::f32}) {
    Data a(t, {6, 100, 300}), b(t, {6, 300, 50}), one(t, {6, 100, 50}), two(t, {6, 100, 50});
    set_all(a.view, [](int64_t i) { return noise(i); });
    set_all(b.view, [](int64_t i) { return noise(i + 5); });
    set_num_threads(1);
    cpu::matmul(a.view, b.view, one.view);
    set_num_threads(2);
    cpu::matmul(a.view, b.view, two.view);
    CHECK(one.bytes == two.bytes);
  }
  set_num_threads(before);
}
