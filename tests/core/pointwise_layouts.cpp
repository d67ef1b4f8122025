// Element-wise work over all strides, dtypes and broadcasts, in place, and cut at any place.
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

const Shape kShapes[] = {{}, {0}, {1}, {7}, {1031}, {3, 0, 2}, {5, 7}, {70, 3}, {3, 70}, {2, 67, 5, 3}, {65, 1, 129}};

void apply(Pointwise fn, std::initializer_list<const View*> in, const View& out, PointwiseParams params = {}) {
  cpu::pointwise(fn, {in.begin(), in.size()}, out, params);
}

// A shape that broadcasts to `shape`: bit d of `mask` makes dim d one, leading ones are dropped with bit 8.
Shape smaller_shape(const Shape& shape, unsigned mask) {
  Shape out = shape;
  for (int d = 0; d < shape.rank(); ++d)
    if (mask >> d & 1) out[d] = 1;
  while (mask >> 8 & 1 && out.rank() > 0 && out[0] == 1) out.erase(0);
  return out;
}

// The index into a broadcast operand for element i of `shape`.
int64_t operand_index(const Shape& shape, const Shape& operand, int64_t i) {
  int64_t at = 0, step = 1;
  for (int k = 1; k <= operand.rank(); ++k) {
    int64_t n = shape[shape.rank() - k], m = operand[operand.rank() - k];
    if (m != 1) at += i % n * step;
    step *= m;
    i /= n;
  }
  return at;
}

}  // namespace

TEST_CASE("pointwise: layouts and broadcasts") {
  for (const Shape& shape : kShapes)
    for (unsigned mask : {0x000u, 0x001u, 0x102u, 0x105u, 0x1ffu})
      for (Lie lie_a : kLies)
        for (Lie lie_out : kLies) {
          Shape other = smaller_shape(shape, mask);
          Data a(DType::f32, shape, lie_a), b(DType::f32, other, lie_a), out(DType::f32, shape, lie_out);
          set_all(a.view, [](int64_t i) { return static_cast<double>(i); });
          set_all(b.view, [](int64_t i) { return 0.25 * static_cast<double>(i % 64); });
          apply(Pointwise::add, {&a.view, &b.view}, out.view);
          INFO(to_string(shape), " + ", to_string(other));
          for (int64_t i = 0; i < out.view.numel(); ++i)
            REQUIRE(get(out.view, i) == get(a.view, i) + get(b.view, operand_index(shape, other, i)));
        }
}

TEST_CASE("pointwise: nothing outside a strided output is written") {
  Data a(DType::f32, {40, 50}), out(DType::f32, {40, 50}, Lie::strided);
  set_all(a.view, [](int64_t) { return 1; });
  apply(Pointwise::neg, {&a.view}, out.view);
  int64_t written = 0;
  for (size_t i = 0; i + 4 <= out.bytes.size(); i += 4) {
    float f;
    std::memcpy(&f, out.bytes.data() + i, 4);
    written += !std::isnan(f);
  }
  CHECK(written == 2000);
}

TEST_CASE("pointwise: all dtypes of inputs and output") {
  for (DType ta : kAllDTypes)
    for (DType tb : kAllDTypes)
      for (DType to : kAllDTypes) {
        Data a(ta, {1500}), b(tb, {1500}, Lie::strided), out(to, {1500});
        set_all(a.view, [](int64_t i) { return static_cast<double>(i % 11); });
        set_all(b.view, [](int64_t i) { return static_cast<double>(i % 7); });
        apply(Pointwise::add, {&a.view, &b.view}, out.view);
        for (int64_t i = 0; i < 1500; ++i) {
          double sum = get(a.view, i) + get(b.view, i);
          REQUIRE(get(out.view, i) == (to == DType::boolean ? sum != 0 : sum));
        }
      }
}

TEST_CASE("pointwise: integer functions for all integer dtypes") {
  for (DType t : {DType::i64, DType::i32, DType::u8}) {
    Data a(t, {500}), b(t, {500}), out(t, {500}), flag(DType::boolean, {500});
    set_all(a.view, [](int64_t i) { return static_cast<double>(i % 97); });
    set_all(b.view, [](int64_t i) { return static_cast<double>(i % 13); });
    apply(Pointwise::floor_div, {&a.view, &b.view}, out.view);
    apply(Pointwise::ge, {&a.view, &b.view}, flag.view);
    for (int64_t i = 0; i < 500; ++i) {
      int64_t x = i % 97, y = i % 13;
      CHECK(get(out.view, i) == static_cast<double>(y ? x / y : 0));
      CHECK(get(flag.view, i) == static_cast<double>(x >= y));
    }
  }
}

TEST_CASE("pointwise: in place") {
  for (DType t : {DType::f32, DType::bf16, DType::i32})
    for (Lie lie : kLies) {
      Data a(t, {70, 65}, lie), b(t, {65});
      set_all(a.view, [](int64_t i) { return static_cast<double>(i % 50); });
      set_all(b.view, [](int64_t i) { return static_cast<double>(i % 3); });
      apply(Pointwise::add, {&a.view, &b.view}, a.view);
      for (int64_t i = 0; i < 70 * 65; ++i) REQUIRE(get(a.view, i) == static_cast<double>(i % 50 + i % 65 % 3));
    }
}

TEST_CASE("pointwise: large transposed inputs") {
  for (DType t : {DType::f32, DType::bf16}) {
    Data a(t, {300, 301}, Lie::reversed), b(t, {300, 301}), out(DType::f32, {300, 301});
    set_all(a.view, [](int64_t i) { return static_cast<double>(i % 127); });
    set_all(b.view, [](int64_t i) { return static_cast<double>(i % 31); });
    apply(Pointwise::sub, {&a.view, &b.view}, out.view);
    for (int64_t i = 0; i < 300 * 301; ++i) REQUIRE(get(out.view, i) == static_cast<double>(i % 127 - i % 31));
  }
}

TEST_CASE("pointwise: the bits of an element do not depend on where a run is cut") {
  constexpr int64_t n = 300;
  Data a(DType::f32, {n}), b(DType::f32, {n}), c(DType::f32, {n}), whole(DType::f32, {n}), part(DType::f32, {n});
  set_all(a.view, [](int64_t i) { return 3 * noise(i) + 3.01; });
  set_all(b.view, [](int64_t i) { return 3 * noise(i + n); });
  set_all(c.view, [](int64_t i) { return noise(i + 2 * n); });
  for (int f = 0; f < static_cast<int>(Pointwise::count_); ++f) {
    auto fn = static_cast<Pointwise>(f);
    size_t inputs = fn < Pointwise::add ? 1 : fn < Pointwise::where ? 2 : 3;
    const View* in[] = {&a.view, &b.view, &c.view};
    cpu::pointwise(fn, {in, inputs}, whole.view, {1.5, 2.5});
    for (int64_t i = 0, k = 1, now; i < n; i += now, k = k * 5 % 37 + 1) {
      now = std::min(k, n - i);
      View cut[4] = {a.view, b.view, c.view, part.view};
      for (View& v : cut) {
        v.data = v.as<float>() + i;
        v.shape[0] = now;
      }
      const View* piece[] = {&cut[0], &cut[1], &cut[2]};
      cpu::pointwise(fn, {piece, inputs}, cut[3], {1.5, 2.5});
    }
    INFO("function ", f);
    CHECK(std::memcmp(whole.view.data, part.view.data, n * 4) == 0);
  }
}

TEST_CASE("pointwise: threads change nothing") {
  Data a(DType::f32, {400, 333}), b(DType::f32, {333}), one(DType::f32, {400, 333}), three(DType::f32, {400, 333});
  set_all(a.view, [](int64_t i) { return noise(i); });
  set_all(b.view, [](int64_t i) { return noise(i + 7); });
  int before = num_threads();
  set_num_threads(1);
  apply(Pointwise::pow_grad_b, {&a.view, &b.view, &b.view}, one.view);
  set_num_threads(3);
  apply(Pointwise::pow_grad_b, {&a.view, &b.view, &b.view}, three.view);
  set_num_threads(before);
  CHECK(std::memcmp(one.view.data, three.view.data, 400 * 333 * 4) == 0);
}

TEST_CASE("accumulate: adds in place, with conversion") {
  for (DType t : kAllDTypes)
    for (Lie lie : kLies) {
      Data x(t, {33, 70}, lie), acc(DType::f32, {33, 70});
      set_all(x.view, [](int64_t i) { return static_cast<double>(i % 9); });
      set_all(acc.view, [](int64_t i) { return 0.5 * static_cast<double>(i); });
      cpu::accumulate(x.view, acc.view);
      for (int64_t i = 0; i < 33 * 70; ++i) REQUIRE(get(acc.view, i) == 0.5 * static_cast<double>(i) + get(x.view, i));
    }
}
