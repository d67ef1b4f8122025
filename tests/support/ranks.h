// Test bodies on a mesh of thread ranks; and what they need often.
#pragma once
#include <cleave/cleave.h>

#include <functional>
#include <string>
#include <vector>

namespace cleave::test {

inline void on_mesh(const std::vector<dist::MeshAxis>& axes, const std::function<void(dist::DeviceMesh)>& body) {
  int ranks = 1;
  for (const auto& a : axes) ranks *= a.size;
  dist::run_ranks({.ranks = ranks, .checked = 1}, [&](dist::World& world) { body(dist::DeviceMesh(world, axes)); });
}

/// Normal f64 numbers, the same on every rank.
inline Tensor normal(const Shape& shape, uint64_t seed) { return randn(shape, {.dtype = DType::f64, .seed = seed}); }
inline Tensor f64(const std::vector<double>& values, const Shape& shape) { return tensor(values, shape); }

/// Gathered equality to rounding.
inline bool near(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  return allclose(a, b, {.rtol = tolerance, .atol = tolerance});
}

/// A block of a copy: thread ranks share no storage.
inline Tensor placed(const Tensor& value, dist::DeviceMesh mesh, const char* layout) {
  return dist::distribute(clone(value), mesh.layout(layout));
}
/// A leaf that requires grad.
inline Tensor weight(const Tensor& value) { return value.detach().set_requires_grad(); }
inline Tensor weight(const Tensor& value, dist::DeviceMesh mesh, const char* layout) {
  return placed(value, mesh, layout).set_requires_grad();
}

/// Collectives of this rank since `dist::record_collectives(true)`, e.g. {"all_reduce", "all_gather"}.
inline std::vector<std::string> kinds() {
  std::vector<std::string> out;
  for (const dist::CommEvent& e : dist::recorded_collectives()) out.emplace_back(to_string(e.kind));
  return out;
}

/// The message of the E that `f` throws; "no error" or "another error: ..." otherwise.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
  return "no error";
}
inline bool contains(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* w : words)
    if (text.find(w) == std::string::npos) return false;
  return true;
}

}  // namespace cleave::test
