// The tensors inside an argument or a result: a Tensor, vectors, arrays, pairs and tuples of them, in order.
#pragma once
#include <array>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave::nn::detail {

template <class T>
struct TensorsOf {
  static constexpr bool any = std::is_same_v<T, Tensor>;
  template <class F>
  static void visit(T& value, F& f) {
    if constexpr (any) f(value);
  }
};
template <class T, class A>
struct TensorsOf<std::vector<T, A>> {
  static constexpr bool any = TensorsOf<T>::any;
  template <class F>
  static void visit(std::vector<T, A>& value, F& f) {
    if constexpr (any)
      for (T& v : value) TensorsOf<T>::visit(v, f);
  }
};
template <class T, size_t N>
struct TensorsOf<std::array<T, N>> {
  static constexpr bool any = TensorsOf<T>::any;
  template <class F>
  static void visit(std::array<T, N>& value, F& f) {
    for (T& v : value) TensorsOf<T>::visit(v, f);
  }
};
template <class A, class B>
struct TensorsOf<std::pair<A, B>> {
  static constexpr bool any = TensorsOf<A>::any || TensorsOf<B>::any;
  template <class F>
  static void visit(std::pair<A, B>& value, F& f) {
    TensorsOf<A>::visit(value.first, f);
    TensorsOf<B>::visit(value.second, f);
  }
};
template <class... T>
struct TensorsOf<std::tuple<T...>> {
  static constexpr bool any = (TensorsOf<T>::any || ...);
  template <class F>
  static void visit(std::tuple<T...>& value, F& f) {
    std::apply([&](T&... v) { (TensorsOf<T>::visit(v, f), ...); }, value);
  }
};

template <class T>
inline constexpr bool has_tensors = TensorsOf<std::remove_cvref_t<T>>::any;
/// Calls f(Tensor&) for each; other parts are left alone.
template <class T, class F>
void each_tensor(T& value, F f) {
  TensorsOf<T>::visit(value, f);
}
template <class T>
std::vector<Tensor> list_tensors(T& value) {
  std::vector<Tensor> out;
  each_tensor(value, [&](Tensor& t) { out.push_back(t); });
  return out;
}

/// An argument on its way into a function: a value of its own, or a reference to what passes through.
template <class T>
struct Placed {
  T value;
  T&& take() { return static_cast<T&&>(value); }
};
/// The argument with `place` applied to its tensors, in copies; a Parameter or Buffer counts as the Tensor it reads as;
/// what has no tensors passes through untouched.
template <class Place, class A>
auto placed_argument(Place& place, A&& argument) {
  using T = std::remove_cvref_t<A>;
  if constexpr (has_tensors<T>) {
    Placed<T> copy{std::forward<A>(argument)};
    each_tensor(copy.value, [&](Tensor& t) { t = place(t); });
    return copy;
  } else if constexpr (std::is_class_v<T> && std::is_convertible_v<const T&, Tensor>) {
    return Placed<Tensor>{place(static_cast<Tensor>(argument))};
  } else {
    return Placed<A&&>{std::forward<A>(argument)};
  }
}
/// All arguments placed, from left to right.
template <class Place, class... A>
auto placed_arguments(Place& place, A&&... arguments) {
  return std::tuple<decltype(placed_argument(place, std::declval<A>()))...>{
      placed_argument(place, std::forward<A>(arguments))...};
}

}  // namespace cleave::nn::detail
