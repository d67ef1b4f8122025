// Parameters that are stored split and used whole: gathered when they are read, or shortly before.
#pragma once
#include <cstdint>

#include <cleave/core/tensor.h>

namespace cleave::nn::detail {

struct ParameterState;

/// The stored tensor of `state` in its use layout, which is another. Communicates, unless that was memoised.
///
/// While communication overlaps with computation (dist::Overlap), the first such parameter that a module reads also
/// starts the gathers of the module that was next in the last pass: one module's gathers are under way while another
/// computes. A pass is one call of an outermost module. The order is remembered per model, alike on all ranks; if
/// another one comes up, what was started in vain is dropped and nothing is started until the next pass.
Tensor gather(const ParameterState& state);

/// A running module: what is read in it belongs together.
class GatherScope {
 public:
  GatherScope();
  ~GatherScope();
  GatherScope(const GatherScope&) = delete;
  GatherScope& operator=(const GatherScope&) = delete;

 private:
  uint64_t outer_;
  int exceptions_;
};

}  // namespace cleave::nn::detail
