// Every element-wise function against the C library in f64: values, special values, integers.
#include <cleave/core/cpu/pointwise.h>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;

// f32 results may be off by kRelative * |value| + absolute: the latter for functions that cancel by nature.
struct Case {
  Pointwise fn;
  std::string name;
  int arity;
  std::function<double(double, double, double)> f;
  double low, high;  // of the first input
  PointwiseParams params{};
  double absolute = 0;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_u(double x) { return std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x); }
double times(double zero_wins, double x) { return zero_wins == 0 ? 0 : zero_wins * x; }
double gelu_tanh(double x) { return times(sigmoid(2 * gelu_u(x)), x); }
double sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b); }
double smaller(double a, double b) { return -larger(-a, -b); }
double round_even(double x) { return std::nearbyint(x); }
double gelu_slope(double x) { return phi(x) + times(std::exp(-x * x / 2) / std::sqrt(2 * kPi), x); }
double gelu_tanh_slope(double x) {
  double s = sigmoid(2 * gelu_u(x));
  return s + times(s * (1 - s), x * 2 * std::sqrt(2 / kPi) * (1 + 3 * 0.044715 * x * x));
}
double silu_slope(double x) { return sigmoid(x) + times(sigmoid(x) * (1 - sigmoid(x)), x); }
double remainder(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define FN1(name, low, high, expr, ...)                                                                        \
  Case {                                                                                                       \
    Pointwise::name, #name, 1, [](double x, double, double) -> double { return expr; }, low, high, __VA_ARGS__ \
  }
#define FN2(name, low, high, a, b, expr, ...)                                                                    \
  Case {                                                                                                         \
    Pointwise::name, #name, 2, [](double a, double b, double) -> double { return expr; }, low, high, __VA_ARGS__ \
  }
#define FN3(name, low, high, a, b, c, expr, ...)                                                                   \
  Case {                                                                                                           \
    Pointwise::name, #name, 3, [](double a, double b, double c) -> double { return expr; }, low, high, __VA_ARGS__ \
  }

const Case kUnary[] = {
    FN1(neg, -9, 9, -x),
    FN1(abs, -9, 9, std::abs(x)),
    FN1(square, -9, 9, x* x),
    FN1(sign, -9, 9, sign(x)),
    FN1(relu, -9, 9, std::isnan(x) ? x : std::max(x, 0.0)),
    FN1(add_scalar, -9, 9, x + 2.5, {2.5}, 1e-6),
    FN1(rsub_scalar, -9, 9, 2.5 - x, {2.5}, 1e-6),
    FN1(mul_scalar, -9, 9, x * 2.5, {2.5}),
    FN1(clamp, -9, 9, smaller(larger(x, -2), 3), {-2, 3}),
    FN1(max_scalar, -9, 9, larger(x, 2), {2}),
    FN1(min_scalar, -9, 9, smaller(x, 2), {2}),
    FN1(rdiv_scalar, -9, 9, 2.5 / x, {2.5}),
    FN1(pow_scalar, 0, 9, std::pow(x, 2.5), {2.5}),
    FN1(pow_scalar, -9, 9, std::pow(x, 3), {3}),
    FN1(pow_scalar, -9, 9, x* x, {2}),
    FN1(pow_scalar, 0, 9, x < 0 ? kNaN : std::sqrt(x), {0.5}),
    FN1(pow_scalar, 0.1, 9, x < 0 ? kNaN : 1 / std::sqrt(x), {-0.5}),
    FN1(pow_scalar, -9, 9, 1 / x, {-1}),
    FN1(exp, -87, 88, std::exp(x)),
    FN1(log, 0, 100, std::log(x), {}, 1e-7),
    FN1(log1p, -1, 3, std::log1p(x)),
    FN1(expm1, -20, 80, std::expm1(x)),
    FN1(expm1, -0.5, 0.5, std::expm1(x)),
    FN1(sqrt, 0, 100, std::sqrt(x)),
    FN1(rsqrt, 0, 100, 1 / std::sqrt(x)),
    FN1(reciprocal, -9, 9, 1 / x),
    FN1(sin, -1e5, 1e5, std::sin(x), {}, 1e-7),
    FN1(sin, -4, 4, std::sin(x), {}, 1e-7),
    FN1(cos, -1e5, 1e5, std::cos(x), {}, 1e-7),
    FN1(sin, -1e20, 1e20, std::sin(x)),
    FN1(tanh, -12, 12, std::tanh(x)),
    FN1(tanh, -0.1, 0.1, std::tanh(x)),
    FN1(sigmoid, -80, 80, sigmoid(x)),
    FN1(silu, -80, 80, times(sigmoid(x), x)),
    FN1(softplus, -80, 80, x > 500 ? x : std::log1p(std::exp(x))),
    FN1(erf, -5, 5, std::erf(x)),
    FN1(erf, -0.01, 0.01, std::erf(x)),
    FN1(gelu, -6, 9, times(phi(x), x), {}, 4e-7),
    FN1(gelu_tanh, -6, 9, gelu_tanh(x), {}, 1e-8),
    FN1(floor, -9, 9, std::floor(x)),
    FN1(ceil, -9, 9, std::ceil(x)),
    FN1(round, -9, 9, round_even(x)),
    FN1(is_nan, -9, 9, std::isnan(x)),
    FN1(is_finite, -9, 9, std::isfinite(x)),
    FN1(logical_not, -9, 9, x == 0),
    FN1(eq_scalar, -9, 9, x == 2, {2}),
    FN1(ne_scalar, -9, 9, x != 2, {2}),
    FN1(lt_scalar, -9, 9, x < 2, {2}),
    FN1(le_scalar, -9, 9, x <= 2, {2}),
    FN1(gt_scalar, -9, 9, x > 2, {2}),
    FN1(ge_scalar, -9, 9, x >= 2, {2}),
};

const Case kBinary[] = {
    FN2(add, -9, 9, a, b, a + b, {}, 1e-6),
    FN2(sub, -9, 9, a, b, a - b, {}, 1e-6),
    FN2(mul, -9, 9, a, b, a* b),
    FN2(maximum, -9, 9, a, b, larger(a, b)),
    FN2(minimum, -9, 9, a, b, smaller(a, b)),
    FN2(div, -9, 9, a, b, a / b),
    FN2(pow, 0.01, 9, a, b, std::pow(a, b)),
    FN2(atan2, -9, 9, a, b, std::atan2(a, b)),
    FN2(floor_div, -99, 99, a, b, b == 0 ? a / b : std::floor((a - remainder(a, b)) / b + 0.25)),
    FN2(remainder, -99, 99, a, b, remainder(a, b), {}, 1e-6),
    FN2(eq, -2, 2, a, b, a == b),
    FN2(ne, -2, 2, a, b, a != b),
    FN2(lt, -2, 2, a, b, a < b),
    FN2(le, -2, 2, a, b, a <= b),
    FN2(gt, -2, 2, a, b, a > b),
    FN2(ge, -2, 2, a, b, a >= b),
    FN2(logical_and, -2, 2, a, b, a != 0 && b != 0),
    FN2(logical_or, -2, 2, a, b, a != 0 || b != 0),
    FN2(logical_xor, -2, 2, a, b, (a != 0) != (b != 0)),
};

const Case kGradients[] = {
    FN2(relu_grad, -9, 9, x, g, x > 0 ? g : 0),
    FN2(abs_grad, -9, 9, x, g, g* sign(x)),
    FN2(square_grad, -9, 9, x, g, 2 * x * g),
    FN2(clamp_grad, -9, 9, x, g, x >= -2 && x <= 3 ? g : 0, {-2, 3}),
    FN2(log_grad, 0.1, 9, x, g, g / x),
    FN2(log1p_grad, -0.9, 9, x, g, g / (1 + x), {}, 1e-6),
    FN2(sqrt_grad, 0.1, 9, y, g, g / (2 * y)),
    FN2(rsqrt_grad, 0.1, 9, y, g, -0.5 * g * y * y * y),
    FN2(reciprocal_grad, -9, 9, y, g, -g* y* y),
    FN2(sin_grad, -9, 9, x, g, g* std::cos(x), {}, 1e-6),
    FN2(cos_grad, -9, 9, x, g, -g* std::sin(x), {}, 1e-6),
    FN2(sin_grad, 1e12, 1e13, x, g, g* std::cos(x)),
    FN2(tanh_grad, -1, 1, y, g, g*(1 - y * y), {}, 1e-6),
    FN2(sigmoid_grad, 0, 1, y, g, g* y*(1 - y), {}, 1e-6),
    FN2(silu_grad, -20, 20, x, g, g* silu_slope(x), {}, 2e-6),
    FN2(softplus_grad, -20, 20, x, g, g* sigmoid(x)),
    FN2(erf_grad, -5, 5, x, g, g * 2 / std::sqrt(kPi) * std::exp(-x * x)),
    FN2(gelu_grad, -6, 6, x, g, g* gelu_slope(x), {}, 2e-6),
    FN2(gelu_tanh_grad, -6, 6, x, g, g* gelu_tanh_slope(x), {}, 2e-6),
    FN2(pow_scalar_grad, 0.1, 9, x, g, g * 2.5 * std::pow(x, 1.5), {2.5}),
    FN2(pow_scalar_grad, -9, 9, x, g, g * 2 * x, {2}),
    FN2(pow_scalar_grad, -9, 9, x, g, 0 * x * g, {0}),
    FN2(expm1_grad, -1, 9, y, g, g*(y + 1), {}, 1e-6),
    FN2(rdiv_scalar_grad, -9, 9, x, g, -g * 2.5 / (x * x), {2.5}),
    FN3(where, -1, 1, c, a, b, c != 0 ? a : b),
    FN3(mul_add, -9, 9, a, b, c, a* b + c, {}, 1e-5),
    FN3(maximum_grad, -1, 1, a, b, g,
        a > b    ? g
        : a == b ? g / 2
                 : 0),
    FN3(minimum_grad, -1, 1, a, b, g,
        a < b    ? g
        : a == b ? g / 2
                 : 0),
    FN3(div_grad_b, -9, 9, a, b, g, -g* a / (b * b)),
    FN3(pow_grad_a, 0.1, 9, a, b, g, g* b* std::pow(a, b - 1)),
    FN3(pow_grad_b, 0.1, 9, a, b, g, g* std::pow(a, b) * std::log(a)),
};

void call(const Case& c, const View& a, const View& b, const View& g, const View& out) {
  const View* in[] = {&a, &b, &g};
  cpu::pointwise(c.fn, {in, static_cast<size_t>(c.arity)}, out, c.params);
}

void check_values(const Case& c, DType dtype) {
  constexpr int64_t n = 1237;
  Data a(dtype, {n}), b(dtype, {n}), g(dtype, {n}), out(dtype, {n});
  set_all(a.view, [&](int64_t i) { return c.low + (c.high - c.low) * (noise(i) + 1) / 2; });
  set_all(b.view, [&](int64_t i) { return i % 7 == 0 ? get(a.view, i) : 4 * noise(i + n); });
  set_all(g.view, [&](int64_t i) { return 2 * noise(i + 2 * n); });
  call(c, a.view, b.view, g.view, out.view);
  double scale = dtype == DType::f64 ? 1e-7 : 1;  // of the tolerances
  double relative = 4e-6 * scale + (is_half(dtype) ? 1.01 * epsilon(dtype) : 0);
  double absolute = c.absolute * scale + (dtype == DType::f64 ? 0 : dtype == DType::f16 ? 1e-7 : 1e-37);
  double most = dtype == DType::f16 ? 65504 : 3e38;
  for (int64_t i = 0; i < n; ++i) {
    double want = c.f(get(a.view, i), get(b.view, i), get(g.view, i)), got = get(out.view, i);
    if (dtype != DType::f64 && std::abs(want) > most * 0.99) continue;
    INFO(c.name, " of ", get(a.view, i), ", ", get(b.view, i), ", ", get(g.view, i), " as ", to_string(dtype), ": got ",
         got, ", want ", want);
    REQUIRE(close(got, want, relative, absolute));
  }
}

}  // namespace

TEST_CASE("pointwise: functions of floats equal the C library's") {
  for (DType t : kFloats) {
    for (const Case& c : kUnary) check_values(c, t);
    for (const Case& c : kBinary) check_values(c, t);
    for (const Case& c : kGradients) check_values(c, t);
  }
}

TEST_CASE("pointwise: every function is tested") {
  bool seen[static_cast<int>(Pointwise::count_)] = {};
  for (const Case& c : kUnary) seen[static_cast<int>(c.fn)] = true;
  for (const Case& c : kBinary) seen[static_cast<int>(c.fn)] = true;
  for (const Case& c : kGradients) seen[static_cast<int>(c.fn)] = true;
  for (int f = 0; f < static_cast<int>(Pointwise::count_); ++f) {
    INFO("function ", f);
    CHECK(seen[f]);
  }
}

TEST_CASE("pointwise: infinities, NaN, zeros and numbers far out") {
  const double values[] = {kInf, -kInf, kNaN, 0.0, -0.0, 1e30, -1e30, 1e-30, -1e-30, 1, -1, 2, 0.5, -0.5};
  constexpr int64_t n = std::size(values);
  for (DType t : {DType::f32, DType::f64}) {
    Data a(t, {n}), out(t, {n});
    set_all(a.view, [&](int64_t i) { return values[i]; });
    for (const Case& c : kUnary) {
      call(c, a.view, a.view, a.view, out.view);
      for (int64_t i = 0; i < n; ++i) {
        double want = c.f(get(a.view, i), 0, 0);
        if (t == DType::f32) want = static_cast<double>(static_cast<float>(want));
        INFO(c.name, " of ", values[i], " as ", to_string(t), ": got ", get(out.view, i), ", want ", want);
        CHECK(close(get(out.view, i), want, t == DType::f32 ? 1e-6 : 1e-13, t == DType::f32 ? 1e-37 : 0));
      }
    }
    for (const Case& c :
         {kBinary[3], kBinary[4], kBinary[5], kBinary[6], kBinary[7], kBinary[9], kBinary[10], kBinary[12]})
      for (double second : values) {
        Data b(t, {n});
        set_all(b.view, [&](int64_t) { return second; });
        call(c, a.view, b.view, a.view, out.view);
        for (int64_t i = 0; i < n; ++i) {
          double want = c.f(get(a.view, i), get(b.view, i), 0);
          if (t == DType::f32) want = static_cast<double>(static_cast<float>(want));
          INFO(c.name, " of ", values[i], ", ", second, ": got ", get(out.view, i), ", want ", want);
          CHECK(close(get(out.view, i), want, t == DType::f32 ? 1e-6 : 1e-13, t == DType::f32 ? 1e-37 : 0));
        }
      }
  }
}

TEST_CASE("pointwise: derivatives vanish or saturate far out") {
  const double values[] = {kInf, -kInf, 1e30, -1e30, 300, -300};
  constexpr int64_t n = std::size(values);
  for (DType t : {DType::f32, DType::f64}) {
    Data x(t, {n}), g(t, {n}), out(t, {n});
    set_all(x.view, [&](int64_t i) { return values[i]; });
    set_all(g.view, [](int64_t) { return 3; });
    for (Pointwise fn :
         {Pointwise::silu_grad, Pointwise::gelu_grad, Pointwise::gelu_tanh_grad, Pointwise::softplus_grad}) {
      const View* in[] = {&x.view, &g.view};
      cpu::pointwise(fn, in, out.view);
      for (int64_t i = 0; i < n; ++i) {
        INFO("function ", static_cast<int>(fn), " at ", values[i]);
        CHECK(close(get(out.view, i), values[i] > 0 ? 3 : 0, 1e-6, 1e-30));
      }
    }
  }
}

TEST_CASE("pointwise: integers are exact, wrap and never trap") {
  constexpr int64_t n = 6;
  const int64_t big = int64_t{1} << 62, least = std::numeric_limits<int64_t>::min();
  const int64_t a[n] = {big + 1, least, 7, -7, 5, -9}, b[n] = {big, -1, -2, 2, 0, 4};
  int64_t out[n];
  View va{const_cast<int64_t*>(a), DType::i64, {n}, {1}}, vb{const_cast<int64_t*>(b), DType::i64, {n}, {1}};
  View vo{out, DType::i64, {n}, {1}};
  auto run = [&](Pointwise fn) {
    const View* in[] = {&va, &vb};
    cpu::pointwise(fn, in, vo);
    return std::vector<int64_t>(out, out + n);
  };
  CHECK(run(Pointwise::sub) == std::vector<int64_t>{1, least + 1, 9, -9, 5, -13});
  CHECK(run(Pointwise::add)[0] == least + 1);
  CHECK(run(Pointwise::floor_div) == std::vector<int64_t>{1, least, -4, -4, 0, -3});
  CHECK(run(Pointwise::remainder) == std::vector<int64_t>{1, 0, -1, 1, 0, 3});
  CHECK(run(Pointwise::maximum) == std::vector<int64_t>{big + 1, -1, 7, 2, 5, 4});
  CHECK(run(Pointwise::gt) == std::vector<int64_t>{1, 0, 1, 0, 1, 0});
}

TEST_CASE("pointwise: what it computes in") {
  int64_t big = (int64_t{1} << 24) + 1;
  float f = 16777216.0f;
  View vi{&big, DType::i64, {}, {}}, vf{&f, DType::f32, {}, {}};
  bool result = false;
  View out{&result, DType::boolean, {}, {}};
  const View* mixed[] = {&vf, &vi};
  cpu::pointwise(Pointwise::eq, mixed, out);
  CHECK(result);  // in f32, where both are 2^24

  int64_t x[3] = {1, 2, 3};
  View v{x, DType::i64, {3}, {1}};
  bool less[3];
  View flags{less, DType::boolean, {3}, {1}};
  const View* in[] = {&v};
  cpu::pointwise(Pointwise::lt_scalar, in, flags, {1.5});
  CHECK((less[0] && !less[1] && !less[2]));  // the bound is not truncated
  cpu::pointwise(Pointwise::eq_scalar, in, flags, {1.5});
  CHECK_FALSE(less[0]);
  float half[3];
  View floats{half, DType::f32, {3}, {1}};
  cpu::pointwise(Pointwise::mul_scalar, in, floats, {0.5});
  CHECK(half[2] == 1.5f);
  cpu::pointwise(Pointwise::exp, in, floats);
  CHECK(std::abs(half[1] - std::exp(2.0f)) < 1e-5f);

  bool cond[3] = {true, false, true};
  View c{cond, DType::boolean, {3}, {1}};
  const View* choose[] = {&c, &v, &v};
  x[0] = big << 30;
  int64_t chosen[3];
  View to{chosen, DType::i64, {3}, {1}};
  cpu::pointwise(Pointwise::where, choose, to);
  CHECK(chosen[0] == big << 30);  // the condition does not make it a float
}
