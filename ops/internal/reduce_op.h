// What reductions share.
#pragma once
#include <cleave/ops/internal/letters.h>
#include <cleave/ops/op.h>

namespace cleave::reduce_op {

struct ReduceAttributes {
  static constexpr size_t kKey = 2;
  uint8_t mask = 0;  ///< reduced dims
  bool keepdim = false;
  double scale = 1;  ///< mean: 1 / the global count
  bool has(int d) const { return mask >> d & 1; }
};

ReduceAttributes attributes_of(const char* op, const Tensor& x, const Dims& dims, bool keepdim);
/// The result's shape; the same with reduced dims kept as 1.
Shape reduced_shape(const Shape& x, const ReduceAttributes& a);
Shape kept_shape(const Shape& x, const ReduceAttributes& a);
/// A dense result seen with its reduced dims as 1, for an input of shape x.
View with_kept_dims(const View& out, const Shape& x, const ReduceAttributes& a);
/// A result expanded back over x's shape, without a copy.
Tensor expand_to(const Tensor& reduced, const Shape& x, const ReduceAttributes& a);
/// Reduced letters leave a partial sum, or must be whole.
Rule reduced_rule(const RuleCall& call, bool whole);
/// Reduces blocks by `kernel` and combines the ranks' results by `op`, off the tape: one small collective. The kernel
/// takes ReduceAttributes.
Tensor reduce_split(const Kernel& kernel, const char* name, const Tensor& x, const ReduceAttributes& a, DType dtype,
                    dist::ReduceOp op);
/// The layout of a result: splits of the dims that stay, R on the axes that split reduced dims (or partial, with `op`).
const dist::LayoutData* result_layout(const dist::LayoutData* x, const ReduceAttributes& a, bool partial,
                                      dist::ReduceOp op);

std::vector<Sample> samples(Fill fill, bool gradient, bool integers, bool empty);

}  // namespace cleave::reduce_op
