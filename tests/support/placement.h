// Values laid out over a mesh by the tests' own arithmetic, and put together again: nothing here communicates.
#pragma once
#include <cleave/dist/mesh_state.h>

#include "support/values.h"

namespace cleave::test {

/// A leaf of this layout whose global value is `values`. Partial axes hold terms of mixed signs, some zero, that add up
/// exactly in f64 and f32. `seed` picks the terms.
Tensor place(const Values& values, DType dtype, const dist::LayoutData* layout, uint64_t seed = 0,
             Form form = Form::dense);

/// What one rank holds of a tensor, kept for a later look at all ranks together.
struct Held {
  DType dtype = DType::f64;
  Shape global;
  dist::LayoutData layout;  ///< its mesh is the rank's own
  Values block;
  uint64_t bits = 0;
};
Held hold(const Tensor& x);

/// Puts the ranks' blocks (by rank of the mesh) together. Returns what is wrong, or "": ranks that disagree on the
/// type, a layout whose rank is not the tensor's, a block that is not the balanced one, replicas with other bits,
/// another value than `want`.
std::string check_held(std::span<const Held* const> ranks, const dist::MeshState& mesh, const Values& want,
                       double tolerance);

/// Whether the contents are equal, whichever rank they are of.
bool same_layout(const dist::LayoutData& a, const dist::LayoutData& b);

}  // namespace cleave::test
