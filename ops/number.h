// A C++ number beside a tensor.
#pragma once
#include <concepts>
#include <type_traits>

namespace cleave {

/// Any arithmetic type converts; integers are exact to 2^53. Whether it was an integer decides the dtype of a result
/// with integer tensors.
struct Number {
  double value = 0;
  bool integral = false;
  template <class T>
  requires std::is_arithmetic_v<T> Number(T v) : value(static_cast<double>(v)), integral(std::integral<T>) {}
};

}  // namespace cleave
