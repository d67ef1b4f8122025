// Layout changes on the tape, and the ways into and out of distributed tensors.
#pragma once
#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>
#include <cleave/dist/mesh.h>

namespace cleave::dist {

/// x under another layout of its mesh or of another one: the identity on the global value. `to` may be a pattern.
/// Communicates as `explain(x.type(), to)` says. Differentiable: the gradient comes back in the layout section 6 gives
/// it (an all-gather's is a reduce-scatter where the cotangent is partial). Memoised: while a result is alive, asking
/// again gives it without communication. Throws LayoutError for a plain x or another number of dims.
Tensor redistribute(const Tensor& x, Layout to);

/// A distributed leaf from a plain value that every rank holds: each keeps its block (a view where `to` leaves it
/// whole). Partial axes: the first rank keeps the value. Does not communicate, except to compare hashes in checked
/// mode, where a difference throws CommError on all ranks. x must not require grad on the tape (GradError): use it as a
/// leaf.
Tensor distribute(const Tensor& x, Layout to);
/// `distribute` to R on every axis of the mesh.
Tensor replicate(const Tensor& x, DeviceMesh mesh);

/// A distributed leaf from this rank's block. With `shape` the block must be the balanced one (ShapeError on all ranks
/// otherwise); without, the global shape is agreed on by communication. Communicates.
Tensor from_local(const Tensor& block, Layout layout);
Tensor from_local(const Tensor& block, Layout layout, const Shape& shape);

/// The whole value as a plain tensor on every rank, off the tape. Communicates unless x is R everywhere; a plain x is
/// returned as it is.
Tensor full_tensor(const Tensor& x);

/// While it lives, a redistribution that the program did not ask for throws LayoutError naming the op (`false` allows
/// them again).
class ForbidImplicitRedistribution {
 public:
  explicit ForbidImplicitRedistribution(bool forbid = true);
  ~ForbidImplicitRedistribution();
  ForbidImplicitRedistribution(const ForbidImplicitRedistribution&) = delete;
  ForbidImplicitRedistribution& operator=(const ForbidImplicitRedistribution&) = delete;

 private:
  bool before_;
};
bool implicit_redistribution_forbidden();

}  // namespace cleave::dist

namespace cleave::autograd {

/// `redistribute` to a resolved layout for `label`, the op that needs it. `again`: nodes that save the result gather it
/// again in backward instead of keeping it (see recipe.h).
Tensor redistribute_taped(const Tensor& x, const dist::LayoutData* to, const char* label, bool again = false);
/// What it returns, given x's elements under `to`, which are not on the tape.
Tensor tape_redistribution(const Tensor& x, const dist::LayoutData* to, Tensor y, const char* label,
                           bool again = false);

}  // namespace cleave::autograd
