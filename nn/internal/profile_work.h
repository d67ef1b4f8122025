// How much work a kernel did, and how long that takes at the best.
#pragma once
#include <unordered_map>

#include <cleave/core/observer.h>
#include <cleave/nn/profile.h>
#include <cleave/ops/op.h>

namespace cleave::nn::detail {

/// Best of a few products and sums. Leaves the allocator of this rank alone.
ProfileBounds measure_bounds();

/// The work of kernels by the records of ops: a kernel is that of an op if its function is, wherever it is launched.
class KernelWork {
 public:
  KernelWork();
  /// An op that is in no list, as a program defines them.
  void learn(const OpDef& op);
  Cost of(const KernelSpan& kernel) const;

 private:
  using CostFn = decltype(OpDef::cost);  // ops of a program may be gone before the profile
  std::unordered_map<KernelFn, CostFn> by_function_;
  std::unordered_map<std::string_view, CostFn> of_backward_;  // by name
};

/// Seconds at the bounds; 0 for a bound that was not measured.
double flops_seconds(const ProfileBounds& bounds, double flops, DType dtype);
double bytes_seconds(const ProfileBounds& bounds, double bytes);

}  // namespace cleave::nn::detail
