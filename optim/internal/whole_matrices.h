// Work on whole matrices of which each rank holds a block.
#pragma once
#include <functional>
#include <span>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>

namespace cleave::optim::detail {

struct MatrixBlock {
  Tensor block;                    ///< plain, of this rank
  Shape shape;                     ///< of the whole
  const dist::LayoutData* layout;  ///< splits it
};

/// Replaces each block by this rank's block of f(i, whole matrix i), which has the same shape. Matrices that are alike
/// (shape, layout, dtype) are dealt out evenly over the ranks that split them, so that each is worked on once, by one
/// rank of those. Communicates, for each kind: an exchange there and one back, of the ranks' own blocks. The same list
/// on every rank.
void on_whole_matrices(std::span<MatrixBlock> matrices, const std::function<Tensor(size_t i, const Tensor&)>& f,
                       const char* label);

}  // namespace cleave::optim::detail
