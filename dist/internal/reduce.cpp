#include <cleave/dist/internal/reduce.h>

#include <algorithm>
#include <type_traits>

#include <cleave/core/parallel.h>

namespace cleave::dist::detail {
namespace {

constexpr int64_t kChunk = 1024;              // accumulators that stay in the first-level cache
constexpr int64_t kGrain = int64_t{1} << 18;  // elements worth a thread

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>, float, T>;

struct Sum {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>)
      return a || b;
    else if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Max {
  template <class A>
  A operator()(A a, A b) const {
    return (a > b) | (a != a) ? a : b;  // no branch, so that it vectorises
  }
};
struct Min {
  template <class A>
  A operator()(A a, A b) const {
    return (a < b) | (a != a) ? a : b;
  }
};

template <class T, class Op>
void reduce_range(std::span<const void* const> in, std::span<void* const> out, int64_t begin, int64_t end, Op op) {
  using A = Accumulator<T>;
  A acc[kChunk];
  for (; begin < end; begin += kChunk) {
    int64_t n = std::min(kChunk, end - begin);
    auto input = [&](size_t k) { return static_cast<const T*>(in[k]) + begin; };
    const T* first = input(0);
    const T* second = in.size() > 1 ? input(1) : first;
    if (in.size() > 1)
      for (int64_t i = 0; i < n; ++i) acc[i] = op(static_cast<A>(first[i]), static_cast<A>(second[i]));
    else
      for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<A>(first[i]);
    for (size_t k = 2; k < in.size(); ++k) {
      const T* x = input(k);
      for (int64_t i = 0; i < n; ++i) acc[i] = op(acc[i], static_cast<A>(x[i]));
    }
    for (void* to : out) {
      T* y = static_cast<T*>(to) + begin;
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(acc[i]);
    }
  }
}

}  // namespace

void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                     int64_t begin, int64_t end) {
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(end - begin, kGrain, [&](int64_t from, int64_t to) {
      from += begin;
      to += begin;
      if (op == ReduceOp::sum)
        reduce_range<T>(in, out, from, to, Sum{});
      else if (op == ReduceOp::max)
        reduce_range<T>(in, out, from, to, Max{});
      else
        reduce_range<T>(in, out, from, to, Min{});
    });
  });
}

}  // namespace cleave::dist::detail
