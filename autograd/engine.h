// The backward engine: runs the nodes that a set of tensors was computed by, latest first.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include <cleave/autograd/node.h>

namespace cleave::autograd {

/// A tensor to start from and the gradient it starts with; `partial` as in Cotangent.
struct Root {
  Tensor tensor;
  Cotangent cotangent;
};

struct EngineOptions {
  bool retain_graph = false;
  /// When given, gradients are added up here for these leaves (by position) and for no others.
  std::span<const Tensor> wanted = {};
  std::vector<Slots>* captured = nullptr;
  /// Called for a leaf when it has the last of its terms of this run. Leaves whose terms some node withholds for want
  /// of a cotangent are passed over.
  std::function<void(const Tensor&)> completed = {};
};

/// Adds the gradients of the roots to the slots of every leaf they were computed from (or of the wanted ones), and
/// returns these leaves in the order in which their last terms came, which is the same on all ranks. Communicates.
std::vector<Tensor> run_backward(std::span<const Root> roots, const EngineOptions& options);

/// The cotangent of ones for `y` in y's layout: split as it is split; R and partial axes R.
Cotangent ones_cotangent(const Tensor& y, double value = 1.0);
/// A user's cotangent brought to y's splits. Throws ShapeError, DTypeError or LayoutError if it does not fit.
Cotangent conform_cotangent(const Tensor& y, const Tensor& cotangent);

}  // namespace cleave::autograd
