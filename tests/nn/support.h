// What the tests of nn/ and optim/ share.
#pragma once
#include <cleave/cleave.h>
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>

namespace cleave::test {

/// Runs f on each number of thread ranks.
inline void on_ranks(std::initializer_list<int> numbers, const std::function<void(dist::World&)>& f) {
  for (int n : numbers) {
    CAPTURE(n);
    dist::run_ranks({.ranks = n}, f);
  }
}

/// dp x tp over all ranks, tp of 2 where the number is even; `flat`: all on tp.
inline dist::DeviceMesh grid(dist::World& world, bool flat = false) {
  int n = world.size(), tp = flat ? n : n % 2 ? 1 : 2;
  return dist::DeviceMesh(world, {{"dp", n / tp}, {"tp", tp}});
}

/// The message of the E that f throws; "" and a failed check if it does not.
template <class E>
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); } catch (const std::exception& e) {
    FAIL_CHECK("threw something else: " << e.what());
    return "";
  }
  FAIL_CHECK("did not throw");
  return "";
}

/// f throws an E whose message has all these words.
template <class E>
void check_throws(const std::function<void()>& f, std::initializer_list<const char*> words) {
  std::string message = message_of<E>(f);
  CAPTURE(message);
  for (std::string word : words) {
    CAPTURE(word);
    CHECK(message.find(word) != std::string::npos);
  }
}

inline Tensor normal(uint64_t seed, const Shape& shape, DType dtype = DType::f64) {
  return randn(shape, {.dtype = dtype, .seed = seed});
}

/// The largest absolute difference of two global values.
inline double distance(const Tensor& a, const Tensor& b) {
  std::vector<double> x = to_vector<double>(a), y = to_vector<double>(b);
  double d = x.size() == y.size() ? 0 : INFINITY;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i)
    d = std::max(d, std::isnan(x[i] - y[i]) ? INFINITY : std::abs(x[i] - y[i]));
  return d;
}

}  // namespace cleave::test
