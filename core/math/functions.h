// How the functions of core/pointwise.h are written down: one line each, in unary.h, binary.h and gradients.h.
#pragma once
#include <cleave/core/math/hd.h>
#include <cleave/core/pointwise.h>

namespace cleave::math {

/// The compute types a function exists for: A and C all three, F the floating ones.
enum class Group : uint8_t { A, F, C };

/// Specialised for every function: `group`, `arity` and `of(params, inputs...)`.
template <Pointwise>
struct Function;

/// PointwiseParams in the compute type.
template <class T>
struct Params {
  T p, q;
};

/// A number as T; for integers truncated, and clamped to what fits.
template <class T>
CLEAVE_HD T param(double v) {
  if constexpr (static_cast<T>(0.5) == 0) {
    if (v >= 9223372036854775807.0) return INT64_MAX;
    if (v <= -9223372036854775808.0) return INT64_MIN;
    return v == v ? static_cast<T>(v) : T(0);
  } else {
    return static_cast<T>(v);
  }
}

}  // namespace cleave::math

// The expression sees its inputs by name, the type T and the scalars p and q.
#define CLEAVE_FUNCTION1(name, kind, x, ...)                        \
  template <>                                                       \
  struct Function<Pointwise::name> {                                \
    static constexpr Group group = Group::kind;                     \
    static constexpr int arity = 1;                                 \
    template <class T>                                              \
    CLEAVE_HD static T of([[maybe_unused]] Params<T> params, T x) { \
      [[maybe_unused]] T p = params.p, q = params.q;                \
      return static_cast<T>(__VA_ARGS__);                           \
    }                                                               \
  };
#define CLEAVE_FUNCTION2(name, kind, a, b, ...)                          \
  template <>                                                            \
  struct Function<Pointwise::name> {                                     \
    static constexpr Group group = Group::kind;                          \
    static constexpr int arity = 2;                                      \
    template <class T>                                                   \
    CLEAVE_HD static T of([[maybe_unused]] Params<T> params, T a, T b) { \
      [[maybe_unused]] T p = params.p, q = params.q;                     \
      return static_cast<T>(__VA_ARGS__);                                \
    }                                                                    \
  };
#define CLEAVE_FUNCTION3(name, kind, a, b, c, ...)                            \
  template <>                                                                 \
  struct Function<Pointwise::name> {                                          \
    static constexpr Group group = Group::kind;                               \
    static constexpr int arity = 3;                                           \
    template <class T>                                                        \
    CLEAVE_HD static T of([[maybe_unused]] Params<T> params, T a, T b, T c) { \
      return static_cast<T>(__VA_ARGS__);                                     \
    }                                                                         \
  };
