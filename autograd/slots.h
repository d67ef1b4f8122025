// Gradient slots (policy M of the design): terms of one tensor's gradient, kept apart by the axes they are partial on.
#pragma once
#include <vector>

#include <cleave/autograd/gradient_rules.h>
#include <cleave/core/tensor.h>

namespace cleave::autograd {

/// A gradient as this rank holds it: its block as a plain tensor, and the mesh axes on which the ranks' sum is it.
struct Cotangent {
  Tensor value;
  AxisMask partial = 0;
  /// Set on its way from a redistribution to a leaf: the layout that `value` still has, for the engine to bring to that
  /// of the leaf together with others; `partial` are the axes that stay so.
  const LayoutData* held = nullptr;
};

class Slots {
 public:
  bool empty() const { return terms_.empty(); }
  void clear() { terms_.clear(); }
  AxisMask any() const;  ///< union of the masks
  AxisMask all() const;  ///< intersection of the masks

  /// Adds a term, summed in `dtype`; never communicates.
  void add(Cotangent term, DType dtype);

  /// Adds the terms of `other` as they are, in their order.
  void take(Slots&& other);

  /// The sum of all terms as one, partial on `any()`: terms that lack an axis count on its first rank only.
  Cotangent sum(const LayoutData* layout);
  /// `sum` with the axes outside `target` all-reduced in one collective, for `label`. Communicates if there are any.
  Cotangent merge(const LayoutData* layout, AxisMask target, const char* label);

 private:
  struct Term {
    Cotangent value;
    bool owned;  // its buffer is ours to add into
  };
  std::vector<Term> terms_;
};

/// All-reduces `value` in place (it must be the caller's own) over `axes`, if there are any.
void reduce_over(const Tensor& value, const LayoutData* layout, AxisMask axes, const char* label);
/// The same; but while communication overlaps with computation it is only started, and whoever wants the elements
/// waits.
void start_reduce_over(const Tensor& value, const LayoutData* layout, AxisMask axes, const char* label);

}  // namespace cleave::autograd
