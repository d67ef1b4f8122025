#include "support/values.h"

#include <cleave/core/primitives.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace cleave::test {
namespace {

template <class T>
T element(double value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
    return T(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else
    return static_cast<T>(value);
}

// What lies between the elements of a strided tensor: nothing that could pass for a value.
template <class T>
T junk() {
  if constexpr (std::is_same_v<T, bool>)
    return true;
  else if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::max();
  else
    return element<T>(std::nan(""));
}

// Row-major position of every element in memory.
template <class F>
void for_each_element(const View& view, F&& f) {
  int64_t n = view.numel();
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0;
    for (int d = view.rank(); d-- > 0;) {
      at += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    f(i, at);
  }
}

Tensor in_larger_buffer(const Shape& shape, DType dtype) {
  Strides strides(shape.rank(), 0);
  int64_t step = 2;
  for (int d = 0; d < shape.rank(); ++d) {
    strides[d] = step;
    step *= shape[d] + 1;
  }
  Tensor buffer = detail::make_tensor(Shape{step + 1}, dtype, Device::Cpu);
  visit_dtype(dtype, [&]<class T>(T) { std::fill_n(buffer.data<T>(), step + 1, junk<T>()); });
  View view{static_cast<char*>(buffer.impl()->view.data) + size_of(dtype), dtype, shape, strides};
  return detail::make_view(buffer, view, shape, nullptr);
}

Tensor repeated(const Shape& shape, DType dtype, int dim) {
  Shape one = shape;
  one[dim] = std::min<int64_t>(1, shape[dim]);
  Tensor base = detail::make_tensor(one, dtype, Device::Cpu);
  View view = base.impl()->view;
  view.shape = shape;
  view.strides[dim] = 0;
  return detail::make_view(base, view, shape, nullptr);
}

}  // namespace

Tensor make_tensor(const Values& values, DType dtype, Form form) {
  bool scalar = values.shape.empty();
  Tensor x = form == Form::strided                    ? in_larger_buffer(values.shape, dtype)
             : form == Form::expanded && !scalar      ? repeated(values.shape, dtype, 0)
             : form == Form::expanded_last && !scalar ? repeated(values.shape, dtype, values.shape.rank() - 1)
                                                      : detail::make_tensor(values.shape, dtype, Device::Cpu);
  visit_dtype(dtype, [&]<class T>(T) {
    T* data = x.data<T>();
    for_each_element(x.impl()->view,
                     [&](int64_t i, int64_t at) { data[at] = element<T>(values.v[static_cast<size_t>(i)]); });
  });
  return x;
}

Values values_of(const Tensor& x) {
  const View& view = x.impl()->view;
  Values out{view.dtype, view.shape, std::vector<double>(static_cast<size_t>(view.numel()))};
  visit_dtype(view.dtype, [&]<class T>(T) {
    for_each_element(view, [&](int64_t i, int64_t at) {
      if constexpr (sizeof(T) == 2)
        out.v[static_cast<size_t>(i)] = static_cast<float>(view.as<T>()[at]);
      else
        out.v[static_cast<size_t>(i)] = static_cast<double>(view.as<T>()[at]);
    });
  });
  return out;
}

Values rounded(const Values& values, DType dtype) { return values_of(make_tensor(values, dtype)); }

std::string difference(const Values& got, const Values& want, double tolerance) {
  if (!(got.shape == want.shape)) return "shape " + to_string(got.shape) + " instead of " + to_string(want.shape);
  double largest = 1;
  for (double w : want.v)
    if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.v.size(); ++i) {
    double g = got.v[i], w = want.v[i];
    if (g == w || (std::isnan(g) && std::isnan(w)) || std::abs(g - w) <= tolerance * largest) continue;
    char text[128];
    std::snprintf(text, sizeof text, "element %zu is %.17g instead of %.17g", i, g, w);
    return text;
  }
  return "";
}

std::string bit_difference(const Tensor& a, const Tensor& b) {
  Tensor x = detail::dense(a), y = detail::dense(b);
  if (!(x.shape() == y.shape()) || x.dtype() != y.dtype())
    return to_string(x.type()) + " instead of " + to_string(y.type());
  int64_t size = size_of(x.dtype());
  auto *p = static_cast<const char*>(x.impl()->view.data), *q = static_cast<const char*>(y.impl()->view.data);
  for (int64_t i = 0; i < numel(x); ++i)
    if (std::memcmp(p + i * size, q + i * size, static_cast<size_t>(size)) != 0) {
      char text[96];
      std::snprintf(text, sizeof text, "element %lld is %.17g instead of %.17g", static_cast<long long>(i),
                    values_of(x).v[static_cast<size_t>(i)], values_of(y).v[static_cast<size_t>(i)]);
      return text;
    }
  return "";
}

uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t h =
      a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + c * 0x94d049bb133111ebull + 0x2545f4914f6cdd1dull;
  for (int round = 0; round < 2; ++round) {
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    h ^= h >> 31;
  }
  return h;
}

uint64_t hash_of(const std::string& text) {
  uint64_t h = 1469598103934665603ull;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ull;
  return h;
}

uint64_t hash_elements(const Tensor& x) {
  const View& view = x.impl()->view;
  auto* bytes = static_cast<const unsigned char*>(view.data);
  uint64_t h = 1469598103934665603ull;
  for_each_element(view, [&](int64_t, int64_t at) {
    for (int64_t b = 0; b < size_of(view.dtype); ++b) h = (h ^ bytes[at * size_of(view.dtype) + b]) * 1099511628211ull;
  });
  return h;
}

double unit(uint64_t random) { return static_cast<double>(random >> 11) * 0x1.0p-53; }

}  // namespace cleave::test
