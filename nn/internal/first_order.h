// Gradients are first order: no gradient is taken inside a function that is being differentiated.
#pragma once

namespace cleave::nn::detail {

/// While it lives, this rank is inside such a function.
class DifferentiatedScope {
 public:
  DifferentiatedScope();
  ~DifferentiatedScope();
  DifferentiatedScope(const DifferentiatedScope&) = delete;
  DifferentiatedScope& operator=(const DifferentiatedScope&) = delete;
};
bool inside_differentiated();

}  // namespace cleave::nn::detail
