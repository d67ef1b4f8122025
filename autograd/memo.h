// Memoised redistributions: weak references, keyed by (tensor, its version, layout, grad mode), per rank.
#pragma once
#include <vector>

#include <cleave/autograd/gradient_rules.h>
#include <cleave/core/tensor.h>

namespace cleave::autograd {

/// The living result of redistributing x to `to`, or undefined.
Tensor recall(const Tensor& x, const LayoutData* to);
/// Remembers `result` for as long as it and x live. The innermost MemoScope keeps it alive.
/// `again`: nodes that save the result are to gather it again in backward instead of keeping it.
void remember(const Tensor& x, const LayoutData* to, const Tensor& result, bool again = false);

/// `recall` whatever the grad mode was: the elements alone, off the tape.
Tensor recall_value(const Tensor& x, const LayoutData* to);

/// A redistribution whose result lives.
struct Remembered {
  Tensor source, result;
  const LayoutData* to = nullptr;
  bool again = false;
};
/// The one whose result x is or is a view of, if neither side was written since; undefined tensors otherwise.
Remembered remembered(const Tensor& x);

/// Keeps results alive until it ends: the running `operator()` of a module. Under RecordOnly the scope around it goes
/// on keeping what the tape otherwise would, parameters aside, up to one that `ends_here`.
class MemoScope {
 public:
  explicit MemoScope(bool ends_here = false);
  ~MemoScope();
  MemoScope(const MemoScope&) = delete;
  MemoScope& operator=(const MemoScope&) = delete;

 private:
  friend void remember(const Tensor&, const LayoutData*, const Tensor&, bool);
  MemoScope* outer_;
  bool ends_here_;
  std::vector<Tensor> kept_;
};

}  // namespace cleave::autograd
