// Sums over the elements of whole tensors, of which each rank holds blocks: many of them in few collectives.
#pragma once
#include <cstdint>
#include <vector>

#include <cleave/core/cpu/reduce.h>
#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::optim::detail {

/// Sums are asked for by `add`, in the same order on all ranks that hold the tensor, and are there after `finish`: one
/// all-reduce for each set of mesh axes that splits what is summed. Replicas get the same bits.
class GlobalSums {
 public:
  /// All dims of a tensor.
  static constexpr uint32_t kAll = ~0u;
  /// The sum of `kind` over `dims` (bit mask), in f64, of which the result holds this rank's block with those dims as
  /// size 1. `layout`: of the block; null: it is the whole.
  Tensor add(cpu::Reduce kind, const Tensor& block, const dist::LayoutData* layout, uint32_t dims = kAll);
  /// Communicates, for `label`.
  void finish(const char* label);
  /// A sum over all dims, once finished.
  static double value(const Tensor& sum);

 private:
  struct Term {
    const dist::MeshState* mesh;
    dist::AxisMask axes;
    Tensor sum;
  };
  void reduce(size_t first, const char* label);
  std::vector<Term> terms_;
};

}  // namespace cleave::optim::detail
