#include <cleave/autograd/redistribute.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/host.h>
#include <cleave/ops/op.h>

#include <cmath>
#include <cstdio>

namespace cleave {

Tensor detail::host_value(const char* op, const Tensor& x, DType dtype) {
  Tensor whole = dist::full_tensor(x);
  if (whole.device() == Device::Meta)
    throw ValueError(op_message(op, to_string(x.type()) + " has no elements: it is a meta tensor"));
  Tensor plain = whole.detach();
  return plain.dtype() == dtype && plain.is_contiguous() ? plain : dense_copy(plain, dtype);
}

template <class T>
T item(const Tensor& x) {
  if (numel(x) != 1)
    throw ShapeError(
        op_message("item", describe(x.type()) + " has " + std::to_string(numel(x)) + " elements, not one"));
  return *detail::host_value("item", x, dtype_of<T>()).template data<T>();
}

template <class T>
std::vector<T> to_vector(const Tensor& x) {
  Tensor host = detail::host_value("to_vector", x, dtype_of<T>());
  const T* data = host.data<T>();
  return std::vector<T>(data, data + numel(host));
}

#define CLEAVE_HOST(T)               \
  template T item<T>(const Tensor&); \
  template std::vector<T> to_vector<T>(const Tensor&);
CLEAVE_HOST(double)
CLEAVE_HOST(float)
CLEAVE_HOST(BFloat16)
CLEAVE_HOST(Half)
CLEAVE_HOST(int64_t)
CLEAVE_HOST(int32_t)
CLEAVE_HOST(uint8_t)
CLEAVE_HOST(bool)
#undef CLEAVE_HOST

bool allclose(const Tensor& a, const Tensor& b, const AllcloseOptions& options) {
  std::vector<double> x = to_vector<double>(a), y = to_vector<double>(b);
  if (!(a.shape() == b.shape())) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (options.equal_nan && std::isnan(x[i]) && std::isnan(y[i]))) continue;
    if (!(std::abs(x[i] - y[i]) <= options.atol + options.rtol * std::abs(y[i]))) return false;
  }
  return true;
}

bool equal(const Tensor& a, const Tensor& b) {
  Tensor x = detail::host_value("equal", a, a.dtype()), y = detail::host_value("equal", b, b.dtype());
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  return visit_dtype(a.dtype(), [&]<class T>(T) {
    const T *p = x.data<T>(), *q = y.data<T>();
    for (int64_t i = 0; i < numel(x); ++i)
      if (!(p[i] == q[i])) return false;
    return true;
  });
}

namespace {

constexpr int64_t kEdge = 3;  // elements shown at either end of a long dim

void print_element(std::string& out, const View& v, int64_t at) {
  char text[32];
  if (is_floating(v.dtype)) {
    double value = visit_dtype(v.dtype, [&]<class T>(T) {
      if constexpr (std::is_same_v<T, double>)
        return v.as<T>()[at];
      else
        return static_cast<double>(static_cast<float>(v.as<T>()[at]));
    });
    std::snprintf(text, sizeof text, "%.5g", value);
  } else {
    long long value = visit_dtype(v.dtype, [&]<class T>(T) {
      if constexpr (std::is_integral_v<T>)
        return static_cast<long long>(v.as<T>()[at]);
      else
        return 0ll;
    });
    std::snprintf(text, sizeof text, "%lld", value);
  }
  out += text;
}

void print_dim(std::string& out, const View& v, int dim, int64_t at) {
  if (dim == v.rank()) {
    print_element(out, v, at);
    return;
  }
  out += "[";
  for (int64_t i = 0; i < v.shape[dim]; ++i) {
    if (i) out += ", ";
    if (v.shape[dim] > 2 * kEdge + 1 && i == kEdge) {
      out += "..., ";
      i = v.shape[dim] - kEdge;
    }
    print_dim(out, v, dim + 1, at + i * v.strides[dim]);
  }
  out += "]";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  std::string out = to_string(x.type());
  bool whole = !x.is_distributed() || x.layout().is_replicated();
  if (!whole || x.device() != Device::Cpu) return out;
  out += " ";
  print_dim(out, detail::elements(x), 0, 0);
  return out;
}

}  // namespace cleave
