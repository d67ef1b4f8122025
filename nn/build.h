// Building a model with a dtype, a device, or without its elements.
#pragma once
#include <optional>
#include <utility>

#include <cleave/core/device.h>
#include <cleave/core/dtype.h>

namespace cleave::nn {

struct BuildOptions {
  std::optional<DType> dtype = std::nullopt;  ///< of floating parameters and buffers; default f32
  Device device = Device::Cpu;
  /// Parameters keep their init as a value until `shard` or `materialize` makes the elements this rank holds.
  bool deferred = false;
};

namespace detail {
/// While it lives, what is built on this rank follows these options.
class BuildScope {
 public:
  explicit BuildScope(const BuildOptions& options);
  ~BuildScope();
  BuildScope(const BuildScope&) = delete;
  BuildScope& operator=(const BuildScope&) = delete;

 private:
  BuildOptions before_;
};
const BuildOptions& build_options();
}  // namespace detail

/// `M(args...)` with these options: `auto model = nn::build<Mlp>({.dtype = DType::f64, .deferred = true}, width);`
template <class M, class... A>
M build(const BuildOptions& options, A&&... args) {
  detail::BuildScope scope(options);
  return M(std::forward<A>(args)...);
}

}  // namespace cleave::nn
