// Gathers and scatters against plain loops.
#include <cleave/core/cpu/index.h>
#include <cleave/core/error.h>

#include <doctest/doctest.h>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

// Small whole numbers: sums are exact in every dtype.
double value(DType t, int64_t i) { return t == DType::boolean ? double(i % 2) : double((i * 7) % 5); }
double sum_in(DType t, double x) { return t == DType::boolean ? x != 0 : x; }

int64_t flat(const Shape& shape, const std::vector<int64_t>& at) {
  int64_t out = 0;
  for (int d = 0; d < shape.rank(); ++d) out = out * shape[d] + at[size_t(d)];
  return out;
}
std::vector<int64_t> unflat(const Shape& shape, int64_t i) {
  std::vector<int64_t> at(size_t(shape.rank()));
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[size_t(d)] = i % shape[d];
    i /= shape[d];
  }
  return at;
}

}  // namespace

TEST_CASE("check_indices: the message names op, index and size; the ignored one passes") {
  Data index(DType::i32, {2, 3}, Lie::reversed);
  set_all(index.view, [](int64_t i) { return double(i); });
  CHECK_NOTHROW(cpu::check_indices("embedding", index.view, 6));
  CHECK_THROWS_WITH_AS(cpu::check_indices("embedding", index.view, 5),
                       "[embedding] index 5 is out of range for a dim of size 5", IndexError);
  CHECK_NOTHROW(cpu::check_indices("embedding", index.view, 5, 5));
  set(index.view, 0, -1);
  CHECK_NOTHROW(cpu::check_indices("embedding", index.view, 6, -1));
  CHECK_THROWS_AS(cpu::check_indices("embedding", index.view, 6), IndexError);
}

TEST_CASE("take_rows and add_rows: a block of a table's rows") {
  for (DType t : kAllDTypes)
    for (Lie lie : kLies)
      for (const Shape& rest : {Shape{}, Shape{1}, Shape{5}, Shape{3, 4}, Shape{1500}, Shape{0}})
        for (const Shape& index_shape : {Shape{}, Shape{7}, Shape{2, 3}, Shape{0}}) {
          Shape table_shape = rest, out_shape = index_shape;
          table_shape.insert(0, 6);
          for (int64_t s : rest) out_shape.push_back(s);
          int64_t width = numel(rest), first = 2;
          Data table(t, table_shape, lie), index(DType::i64, index_shape, lie), out(t, out_shape),
              back(t, table_shape, lie);
          set_all(table.view, [&](int64_t i) { return value(t, i); });
          set_all(index.view, [](int64_t i) { return double((i * 5) % 10); });  // the table holds rows 2 to 7
          cpu::take_rows(table.view, index.view, first, out.view);
          cpu::add_rows(out.view, index.view, first, back.view);
          int64_t wrong = 0;
          std::vector<double> sums(size_t(6 * width), 0.0);
          for (int64_t p = 0; p < numel(index_shape); ++p)
            for (int64_t c = 0; c < width; ++c) {
              auto r = int64_t(get(index.view, p)) - first;
              bool here = r >= 0 && r < 6;
              double want = here ? get(table.view, r * width + c) : 0;
              wrong += get(out.view, p * width + c) != want;
              if (here) sums[size_t(r * width + c)] += want;
            }
          for (int64_t i = 0; i < 6 * width; ++i) wrong += get(back.view, i) != sum_in(t, sums[size_t(i)]);
          CHECK(wrong == 0);
        }
}

TEST_CASE("add_rows: halves are summed in f32") {
  for (DType t : {DType::bf16, DType::f16}) {
    Data dout(t, {4096, 1}), index(DType::i32, {4096}), table(t, {2, 1});
    set_all(dout.view, [](int64_t) { return 1.0; });
    set_all(index.view, [](int64_t) { return 1.0; });
    cpu::add_rows(dout.view, index.view, 0, table.view);
    CHECK(get(table.view, 0) == 0);
    CHECK(get(table.view, 1) == 4096);
  }
}

TEST_CASE("index_select and index_add along any dim") {
  for (DType t : kAllDTypes)
    for (Lie lie : kLies)
      for (int dim : {0, 1, 2}) {
        Shape shape{4, 5, 6}, out_shape = shape;
        out_shape[dim] = 8;
        Data x(t, shape, lie), index(DType::i32, {8}, lie), out(t, out_shape), back(t, shape, lie);
        set_all(x.view, [&](int64_t i) { return value(t, i); });
        set_all(index.view, [](int64_t i) { return double((i * 3) % 7); });
        cpu::index_select(x.view, dim, index.view, 1, out.view);
        cpu::index_add(out.view, dim, index.view, 1, back.view);
        std::vector<double> sums(120, 0.0);
        int64_t wrong = 0;
        for (int64_t i = 0; i < numel(out_shape); ++i) {
          auto at = unflat(out_shape, i);
          at[size_t(dim)] = int64_t(get(index.view, at[size_t(dim)])) - 1;
          bool here = at[size_t(dim)] >= 0 && at[size_t(dim)] < shape[dim];
          wrong += get(out.view, i) != (here ? get(x.view, flat(shape, at)) : 0);
          if (here) sums[size_t(flat(shape, at))] += get(out.view, i);
        }
        for (int64_t i = 0; i < 120; ++i) wrong += get(back.view, i) != sum_in(t, sums[size_t(i)]);
        CHECK(wrong == 0);
      }
}

TEST_CASE("gather and scatter_add along any dim, with indices for a part of the rest") {
  for (DType t : kAllDTypes)
    for (Lie lie : kLies)
      for (int dim : {0, 1, 2})
        for (const Shape& index_shape : {Shape{3, 4, 5}, Shape{2, 7, 3}, Shape{4, 1, 1}, Shape{2, 0, 3}}) {
          Shape shape{4, 5, 6};
          bool fits = true;
          for (int d = 0; d < 3; ++d) fits = fits && (d == dim || index_shape[d] <= shape[d]);
          if (!fits) continue;
          Data x(t, shape, lie), index(DType::i64, index_shape, lie), out(t, index_shape, lie), back(t, shape);
          set_all(x.view, [&](int64_t i) { return value(t, i); });
          set_all(index.view, [](int64_t i) { return double((i * 3) % 9); });
          cpu::gather(x.view, dim, index.view, 2, out.view);
          cpu::scatter_add(out.view, dim, index.view, 2, back.view);
          std::vector<double> sums(120, 0.0);
          int64_t wrong = 0;
          for (int64_t i = 0; i < numel(index_shape); ++i) {
            auto at = unflat(index_shape, i);
            at[size_t(dim)] = int64_t(get(index.view, i)) - 2;
            bool here = at[size_t(dim)] >= 0 && at[size_t(dim)] < shape[dim];
            wrong += get(out.view, i) != (here ? get(x.view, flat(shape, at)) : 0);
            if (here) sums[size_t(flat(shape, at))] += get(out.view, i);
          }
          for (int64_t i = 0; i < 120; ++i) wrong += get(back.view, i) != sum_in(t, sums[size_t(i)]);
          CHECK(wrong == 0);
        }
}

TEST_CASE("rope: rotates by position, in both pairings, and back") {
  for (DType t : kFloats)
    for (Lie lie : kLies)
      for (bool interleaved : {false, true}) {
        Shape shape{2, 3, 5, 8};
        Data x(t, shape, lie), y(t, shape), back(t, shape, lie);
        set_all(x.view, [](int64_t i) { return noise(i); });
        cpu::rope(x.view, 10000, 7, interleaved, false, y.view);
        cpu::rope(y.view, 10000, 7, interleaved, true, back.view);
        int64_t wrong = 0;
        for (int64_t r = 0; r < 30; ++r)
          for (int64_t j = 0; j < 4; ++j) {
            double angle = double(7 + r % 5) * std::pow(10000, -2.0 * double(j) / 8);
            int64_t a = r * 8 + (interleaved ? 2 * j : j), b = interleaved ? a + 1 : a + 4;
            double xa = get(x.view, a), xb = get(x.view, b), tiny = 2 * epsilon(t) + (t == DType::f64 ? 0 : 1e-7);
            wrong += !close(get(y.view, a), xa * std::cos(angle) - xb * std::sin(angle), 0, 2 * tiny);
            wrong += !close(get(y.view, b), xa * std::sin(angle) + xb * std::cos(angle), 0, 2 * tiny);
            wrong += !close(get(back.view, a), xa, 0, 4 * tiny) + !close(get(back.view, b), xb, 0, 4 * tiny);
          }
        CHECK(wrong == 0);
      }
}
