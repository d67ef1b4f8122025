// Copies between all dtypes and layouts, fills, and the 16-bit formats bit by bit.
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/parallel.h>

#include <doctest/doctest.h>

#include <limits>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

TEST_CASE("copy: all dtypes, layouts and shapes") {
  const Shape shapes[] = {{}, {0, 3}, {1}, {13}, {2049}, {9, 33}, {33, 9}, {3, 20, 17}, {4, 1, 70, 3}};
  for (const Shape& shape : shapes)
    for (DType from : kAllDTypes)
      for (DType to : kAllDTypes)
        for (Lie a : kLies)
          for (Lie b : {Lie::dense, Lie::reversed, Lie::strided}) {
            Data src(from, shape, a), dst(to, shape, b);
            set_all(src.view, [](int64_t i) { return static_cast<double>(i % 100); });
            cpu::copy(src.view, dst.view);
            INFO(to_string(shape), " ", to_string(from), " -> ", to_string(to));
            for (int64_t i = 0; i < dst.view.numel(); ++i) {
              double want = get(src.view, i);
              REQUIRE(get(dst.view, i) == (to == DType::boolean ? want != 0 : want));
            }
          }
}

TEST_CASE("copy: large transposes, with and without conversion") {
  for (DType from : {DType::f32, DType::u8, DType::f64, DType::bf16})
    for (DType to : {from, DType::f16}) {
      Data src(from, {3, 211, 190}), dst(to, {3, 190, 211});
      set_all(src.view, [](int64_t i) { return static_cast<double>(i % 251); });
      View turned = src.view;
      std::swap(turned.shape[1], turned.shape[2]);
      std::swap(turned.strides[1], turned.strides[2]);
      for (int threads : {1, 3}) {
        int before = num_threads();
        set_num_threads(threads);
        cpu::copy(turned, dst.view);
        set_num_threads(before);
        for (int64_t i = 0; i < dst.view.numel(); ++i) REQUIRE(get(dst.view, i) == get(turned, i));
      }
    }
}

TEST_CASE("copy: expanded sources") {
  Data src(DType::i32, {1, 5, 1}), dst(DType::i32, {7, 5, 900}), wide(DType::f64, {7, 5, 900});
  set_all(src.view, [](int64_t i) { return static_cast<double>(i + 1); });
  View expanded = src.view;
  expanded.shape = {7, 5, 900};
  expanded.strides = {0, 1, 0};
  cpu::copy(expanded, dst.view);
  cpu::copy(expanded, wide.view);
  for (int64_t i = 0; i < dst.view.numel(); ++i) {
    REQUIRE(get(dst.view, i) == static_cast<double>(i / 900 % 5 + 1));
    REQUIRE(get(wide.view, i) == static_cast<double>(i / 900 % 5 + 1));
  }
}

TEST_CASE("copy: what conversion does to numbers") {
  double from[] = {-2.9, 2.9, 0.3, 1e10, std::numeric_limits<double>::quiet_NaN()};
  View src{from, DType::f64, {4}, {1}};
  int64_t wide[4];
  bool flags[4];
  uint8_t bytes[4];
  cpu::copy(src, View{wide, DType::i64, {4}, {1}});
  CHECK((wide[0] == -2 && wide[1] == 2 && wide[2] == 0 && wide[3] == 10000000000));
  cpu::copy(src, View{flags, DType::boolean, {4}, {1}});
  CHECK((flags[0] && flags[1] && flags[2] && flags[3]));
  int64_t big[] = {257, -1, (int64_t{1} << 53) + 1, 0};
  cpu::copy(View{big, DType::i64, {4}, {1}}, View{bytes, DType::u8, {4}, {1}});
  CHECK((bytes[0] == 1 && bytes[1] == 255 && bytes[3] == 0));
  cpu::copy(View{big, DType::i64, {4}, {1}}, View{wide, DType::i64, {4}, {1}});
  CHECK(wide[2] == big[2]);
}

TEST_CASE("copy: all values of the 16-bit formats go to f32 and back as core/half.h says") {
  constexpr int64_t n = 65536;
  std::vector<uint16_t> bits(n), back(n);
  std::vector<float> wide(n);
  for (int64_t i = 0; i < n; ++i) bits[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
  auto check = [&]<class H>(H, DType t) {
    View half{bits.data(), t, {n}, {1}}, f{wide.data(), DType::f32, {n}, {1}}, again{back.data(), t, {n}, {1}};
    cpu::copy(half, f);
    cpu::copy(f, again);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      H h;
      h.bits = bits[i];
      auto want = static_cast<float>(h);
      REQUIRE(std::memcmp(&wide[i], &want, 4) == 0);
      REQUIRE(back[i] == H{want}.bits);
      if (!std::isnan(want)) REQUIRE(back[i] == bits[i]);
    }
  };
  check(BFloat16{}, DType::bf16);
  check(Half{}, DType::f16);
}

TEST_CASE("copy: f32 rounds to the 16-bit formats as core/half.h says") {
  constexpr int64_t n = 400000;
  std::vector<float> f(n);
  std::vector<uint16_t> out(n);
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    auto u = static_cast<uint32_t>(i * 10737u + 12345u);
    std::memcpy(&f[i], &u, 4);
  }
  View src{f.data(), DType::f32, {n}, {1}};
  cpu::copy(src, View{out.data(), DType::bf16, {n}, {1}});
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) REQUIRE(out[i] == BFloat16{f[i]}.bits);
  cpu::copy(src, View{out.data(), DType::f16, {n}, {1}});
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) REQUIRE(out[i] == Half{f[i]}.bits);
}

TEST_CASE("fill: all dtypes and layouts, nothing else is touched") {
  for (DType t : kAllDTypes)
    for (Lie lie : kLies)
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{17, 90}, Shape{40000}}) {
        Data d(t, shape, lie), e(t, shape, lie);
        cpu::fill(d.view, 3.0);
        cpu::fill(e.view, int64_t{3});
        for (int64_t i = 0; i < d.view.numel(); ++i) {
          REQUIRE(get(d.view, i) == (t == DType::boolean ? 1 : 3));
          REQUIRE(get(e.view, i) == (t == DType::boolean ? 1 : 3));
        }
        auto untouched = std::count(d.bytes.begin(), d.bytes.end(), 0xff);
        CHECK(untouched == static_cast<int64_t>(d.bytes.size()) - d.view.numel() * size_of(t));
      }
}
