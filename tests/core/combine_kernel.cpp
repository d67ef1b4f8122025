// Combinations of whole buffers against plain loops.
#include <doctest/doctest.h>

#include <cleave/core/cpu/combine.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace cleave;
using cpu::Combine;

namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8,   DType::boolean};

template <class T>
T number(int buffer, int64_t i) {
  int v = static_cast<int>((i * 37 + buffer * 1009 + 11) % 251);
  if constexpr (std::is_same_v<T, bool>)
    return v % 2;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(std::numeric_limits<T>::max() / 3) * static_cast<uint64_t>(v % 4) +
                          static_cast<uint64_t>(v));  // sums wrap
  else
    return static_cast<T>(std::sin(static_cast<float>(v)) * std::exp2(static_cast<float>(i % 9)));
}

template <class A>
A join(Combine op, A a, A b) {
  if constexpr (std::is_same_v<A, bool>) return op == Combine::min ? a && b : a || b;
  if (op == Combine::max) return std::max(a, b);
  if (op == Combine::min) return std::min(a, b);
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class T>
T expected(Combine op, int buffers, int64_t i) {
  using A = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
  A acc = static_cast<A>(number<T>(0, i));
  for (int k = 1; k < buffers; ++k) acc = join(op, acc, static_cast<A>(number<T>(k, i)));
  return static_cast<T>(acc);
}

/// Combines [begin, end) of `buffers` buffers, into one more or in place into all; what differs from plain loops.
template <class T>
int faults(Combine op, int buffers, bool in_place, int64_t begin, int64_t end) {
  int64_t n = end + 3;
  std::vector<std::vector<unsigned char>> memory;
  for (int k = 0; k <= buffers; ++k) {
    memory.emplace_back(static_cast<size_t>(n) * sizeof(T));
    for (int64_t i = 0; i < n; ++i) {
      T x = number<T>(k, i);
      std::memcpy(memory.back().data() + static_cast<size_t>(i) * sizeof(T), &x, sizeof x);
    }
  }
  std::vector<const void*> in;
  std::vector<void*> out;
  for (int k = 0; k < buffers; ++k) in.push_back(memory[static_cast<size_t>(k)].data());
  if (in_place)
    for (int k = 0; k < buffers; ++k) out.push_back(memory[static_cast<size_t>(k)].data());
  else
    out.push_back(memory.back().data());
  cpu::combine(dtype_of<T>(), op, in, out, begin, end);
  int wrong = 0;
  for (int k = in_place ? 0 : buffers; k < (in_place ? buffers : buffers + 1); ++k)
    for (int64_t i = 0; i < n; ++i) {
      T want = i >= begin && i < end ? expected<T>(op, buffers, i) : number<T>(k, i);
      wrong += std::memcmp(memory[static_cast<size_t>(k)].data() + static_cast<size_t>(i) * sizeof(T), &want,
                           sizeof want) != 0;
    }
  return wrong;
}

}  // namespace

TEST_CASE("any number of buffers of every dtype combine like plain loops, bit for bit") {
  for (DType t : kAll)
    for (Combine op : {Combine::sum, Combine::max, Combine::min})
      for (int buffers : {1, 2, 3, 4, 5, 8})
        for (bool in_place : {false, true})
          for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 0}, {0, 1}, {3, 70}, {5, 2400}}) {
            CAPTURE(to_string(t));
            CAPTURE(static_cast<int>(op));
            CAPTURE(buffers);
            CAPTURE(in_place);
            CAPTURE(end);
            CHECK(visit_dtype(
                      t, [&](auto zero) { return faults<decltype(zero)>(op, buffers, in_place, begin, end); }) == 0);
          }
}

TEST_CASE("NaN wins maxima and minima wherever it stands") {
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at : {0u, 1u, 2u})
    for (Combine op : {Combine::max, Combine::min}) {
      float x[3] = {1, 2, 3}, y = 0;
      x[at] = nan;
      std::vector<const void*> in{&x[0], &x[1], &x[2]};
      void* out = &y;
      cpu::combine(DType::f32, op, in, {&out, 1}, 0, 1);
      CHECK(std::isnan(y));
    }
}
