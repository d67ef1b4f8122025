#include <cleave/core/cpu/loops/combine.h>
#include <cleave/core/math/half.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

// How elements of a dtype are held in memory, and what they are combined in.
template <class T>
struct Plain {
  using Stored = T;
  using Acc = T;
  [[gnu::always_inline]] static T get(T x) { return x; }
  [[gnu::always_inline]] static T put(T x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Acc = float;
  [[gnu::always_inline]] static float get(uint16_t x) { return math::from_bf16(x); }
  [[gnu::always_inline]] static uint16_t put(float x) { return math::to_bf16(x); }
};
struct F16 {
  using Stored = uint16_t;
  using Acc = float;
  [[gnu::always_inline]] static float get(uint16_t x) { return math::from_f16(x); }
  [[gnu::always_inline]] static uint16_t put(float x) { return math::to_f16(x); }
};
struct Bool {
  using Stored = uint8_t;
  using Acc = uint8_t;
  [[gnu::always_inline]] static uint8_t get(uint8_t x) { return x != 0; }
  [[gnu::always_inline]] static uint8_t put(uint8_t x) { return x; }
};

template <class E>
struct Sum {
  template <class A>
  [[gnu::always_inline]] static A of(A a, A b) {
    return a + b;
  }
  [[gnu::always_inline]] static int64_t of(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  [[gnu::always_inline]] static int32_t of(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  [[gnu::always_inline]] static uint8_t of(uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + b); }
};
template <>
struct Sum<Bool> {
  [[gnu::always_inline]] static uint8_t of(uint8_t a, uint8_t b) { return a | b; }
};
template <class E>
struct Max {
  template <class A>
  [[gnu::always_inline]] static A of(A a, A b) {
    return (a > b) | (a != a) ? a : b;
  }
};
template <class E>
struct Min {
  template <class A>
  [[gnu::always_inline]] static A of(A a, A b) {
    return (a < b) | (a != a) ? a : b;
  }
};

// The usual groups, in registers: K inputs, all read before the outputs are written, so these may be the same.
template <class E, class Op, int K>
void few(const void* const* in, void* const* out, int outs, int64_t begin, int64_t end) {
  using S = typename E::Stored;
  const S* x[K];
  for (int k = 0; k < K; ++k) x[k] = static_cast<const S*>(in[k]);
  auto one = [&](int64_t i) __attribute__((always_inline)) {
    auto acc = E::get(x[0][i]);
#pragma GCC unroll 4
    for (int k = 1; k < K; ++k) acc = Op::of(acc, E::get(x[k][i]));
    return E::put(acc);
  };
  if (outs == 1) {
    S* y = static_cast<S*>(out[0]);
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) y[i] = one(i);
    return;
  }
  S* y[K];
  for (int k = 0; k < K; ++k) y[k] = static_cast<S*>(out[k]);
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    S value = one(i);
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) y[k][i] = value;
  }
}

// Any number of buffers, through accumulators that stay in the first-level cache.
template <class E, class Op>
void many(const void* const* in, int ins, void* const* out, int outs, int64_t begin, int64_t end) {
  using S = typename E::Stored;
  constexpr int64_t kChunk = 1024;
  typename E::Acc acc[kChunk];
  for (; begin < end; begin += kChunk) {
    int64_t n = end - begin < kChunk ? end - begin : kChunk;
    const S* first = static_cast<const S*>(in[0]) + begin;
    for (int64_t i = 0; i < n; ++i) acc[i] = E::get(first[i]);
    for (int k = 1; k < ins; ++k) {
      const S* x = static_cast<const S*>(in[k]) + begin;
      for (int64_t i = 0; i < n; ++i) acc[i] = Op::of(acc[i], E::get(x[i]));
    }
    for (int j = 0; j < outs; ++j) {
      S* y = static_cast<S*>(out[j]) + begin;
      for (int64_t i = 0; i < n; ++i) y[i] = E::put(acc[i]);
    }
  }
}

template <class E, class Op>
void run(const void* const* in, int ins, void* const* out, int outs, int64_t begin, int64_t end) {
  bool usual = outs == 1 || outs == ins;
  if (usual && ins == 2) return few<E, Op, 2>(in, out, outs, begin, end);
  if (usual && ins == 3) return few<E, Op, 3>(in, out, outs, begin, end);
  if (usual && ins == 4) return few<E, Op, 4>(in, out, outs, begin, end);
  many<E, Op>(in, ins, out, outs, begin, end);
}

template <class E>
constexpr void enter(CombineLoops::Run* of) {
  of[static_cast<int>(Combine::sum)] = run<E, Sum<E>>;
  of[static_cast<int>(Combine::max)] = run<E, Max<E>>;
  of[static_cast<int>(Combine::min)] = run<E, Min<E>>;
}
template <class... Es>
constexpr CombineLoops all() {
  CombineLoops loops{};
  int dtype = 0;
  (enter<Es>(loops.of[dtype++]), ...);
  return loops;
}

}  // namespace

// In the order of DType.
constinit const CombineLoops combine_loops =
    all<Plain<double>, Plain<float>, Bf16, F16, Plain<int64_t>, Plain<int32_t>, Plain<uint8_t>, Bool>();

}  // namespace cleave::cpu::CLEAVE_ISA
