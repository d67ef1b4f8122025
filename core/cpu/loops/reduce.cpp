#include <cleave/core/cpu/loops/reduce.h>
#include <cleave/core/math/arithmetic.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

template <class T>
inline constexpr T kLowest = -math::kInf<T>;
template <class T>
inline constexpr T kHighest = math::kInf<T>;
template <>
inline constexpr int64_t kLowest<int64_t> = INT64_MIN;
template <>
inline constexpr int64_t kHighest<int64_t> = INT64_MAX;

// A kind is an identity, a function of elements, and an associative operation.
#define CLEAVE_REDUCTION(name, identity, element, join_)    \
  struct name {                                             \
    template <class T>                                      \
    static constexpr T start = identity;                    \
    template <class T>                                      \
    [[gnu::always_inline]] static inline T map(T x) {       \
      return element;                                       \
    }                                                       \
    template <class T>                                      \
    [[gnu::always_inline]] static inline T join(T a, T b) { \
      return join_;                                         \
    }                                                       \
  };
CLEAVE_REDUCTION(Sum, T(0), x, math::add(a, b))
CLEAVE_REDUCTION(Prod, T(1), x, math::mul(a, b))
CLEAVE_REDUCTION(Max, kLowest<T>, x, math::maximum(a, b))
CLEAVE_REDUCTION(Min, kHighest<T>, x, math::minimum(a, b))
CLEAVE_REDUCTION(SumAbs, T(0), math::abs(x), math::add(a, b))
CLEAVE_REDUCTION(SumSquare, T(0), math::mul(x, x), math::add(a, b))
CLEAVE_REDUCTION(MaxAbs, T(0), math::abs(x), math::maximum(a, b))
CLEAVE_REDUCTION(Any, T(0), x != 0 ? T(1) : T(0), a > b ? a : b)
CLEAVE_REDUCTION(All, T(1), x != 0 ? T(1) : T(0), a < b ? a : b)
#undef CLEAVE_REDUCTION

template <class T>
struct TotalOf {
  using type = double;
};
template <>
struct TotalOf<int64_t> {
  using type = int64_t;
};

// Lanes are folded in halves; their number, not the vector width, fixes the order of a sum.
template <class Op, class T>
void row(const void* data, int64_t n, void* total) {
  constexpr int64_t kLanes = 512 / sizeof(T);
  const T* x = static_cast<const T*>(data);
  int64_t width = kLanes;
  while (width > 1 && width / 2 >= n) width /= 2;
  T acc[kLanes];
  for (int64_t j = 0; j < width; ++j) acc[j] = Op::template start<T>;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) acc[j] = Op::join(acc[j], Op::map(x[i + j]));
  for (int64_t j = 0; j < n - i; ++j) acc[j] = Op::join(acc[j], Op::map(x[i + j]));
  for (int64_t step = width / 2; step > 0; step /= 2)
    for (int64_t j = 0; j < step; ++j) acc[j] = Op::join(acc[j], acc[j + step]);
  *static_cast<typename TotalOf<T>::type*>(total) = static_cast<typename TotalOf<T>::type>(acc[0]);
}

template <class Op, class T>
void start(void* acc, int64_t n) {
  for (int64_t j = 0; j < n; ++j) static_cast<T*>(acc)[j] = Op::template start<T>;
}

template <class Op, class T>
void column(const void* data, int64_t n, void* acc) {
  const T* __restrict x = static_cast<const T*>(data);
  T* __restrict y = static_cast<T*>(acc);
  for (int64_t j = 0; j < n; ++j) y[j] = Op::join(y[j], Op::map(x[j]));
}

template <class Op, class T>
void finish(const void* acc, int64_t n, void* totals) {
  using Total = typename TotalOf<T>::type;
  for (int64_t j = 0; j < n; ++j) static_cast<Total*>(totals)[j] = static_cast<Total>(static_cast<const T*>(acc)[j]);
}

template <class Op, class T>
void merge(const void* from, int64_t n, void* totals) {
  const T* __restrict x = static_cast<const T*>(from);
  T* __restrict y = static_cast<T*>(totals);
  for (int64_t j = 0; j < n; ++j) y[j] = Op::join(y[j], x[j]);
}

template <class Op, class T>
constexpr ReduceLoop loop() {
  return {row<Op, T>, start<Op, T>, column<Op, T>, finish<Op, T>, merge<Op, typename TotalOf<T>::type>};
}
template <class Op>
constexpr void enter(ReduceLoop* of) {
  of[static_cast<int>(Compute::f32)] = loop<Op, float>();
  of[static_cast<int>(Compute::f64)] = loop<Op, double>();
  of[static_cast<int>(Compute::i64)] = loop<Op, int64_t>();
}
template <class... Ops>
constexpr ReduceLoops all() {
  ReduceLoops loops{};
  int kind = 0;
  (enter<Ops>(loops.of[kind++]), ...);
  return loops;
}

}  // namespace

// In the order of Reduce.
constinit const ReduceLoops reduce_loops = all<Sum, Prod, Max, Min, SumAbs, SumSquare, MaxAbs, Any, All>();

}  // namespace cleave::cpu::CLEAVE_ISA
