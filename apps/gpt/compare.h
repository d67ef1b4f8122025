// gpt train --compare single: the run on a mesh beside the same run on one device.
#pragma once
#include <cleave/core/tensor.h>
#include <cleave/dist/launch.h>

#include <string>
#include <vector>

#include "gpt/data.h"
#include "gpt/options.h"
#include "gpt/plans.h"

namespace gpt {

/// One tensor of both runs, plain.
struct Pair {
  std::string name;
  cleave::Tensor split, single;
};
/// The largest relative difference in a list of tensors of one kind, and the first that differs by more than allowed.
struct Deviation {
  double largest = 0;
  std::string where;      ///< of the largest
  std::string first_bad;  ///< "" if none
};
/// Differences count relative to the largest entry of their tensor, or to 1e-3 of the largest entry of any tensor of
/// the kind where that is more: what should be zero has rounding noise that compares to nothing. NaN is a difference.
Deviation deviation(const std::vector<Pair>& kind, double tolerance);

/// |a - b| / max(|a|, |b|), 0 for equal numbers; NaN if either is.
double relative(double a, double b);

/// Trains both from the same seed, step by step, and compares loss, gradient norm, every gradient and every parameter,
/// gathered. In f64 the runs go their own ways, and stay within 1e-10. In fewer bits rounding adds up over steps (an
/// entry whose gradient is noise moves by the learning rate, up here and down there): both are updated by the gradients
/// of one device, so that each step compares gradients of equal weights, and updates by equal gradients, within a few
/// roundings of the dtypes that were asked for. A step whose scaled gradients overflow is left out by both. Prints the
/// differences on rank 0; throws Error naming the first tensor out of tolerance. Communicates.
void compare_with_single(cleave::dist::World& world, const TrainOptions& options, const Placement& placement,
                         const Corpus& corpus);

}  // namespace gpt
