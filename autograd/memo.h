// Memoised redistributions: weak references, keyed by (tensor, its version, layout, grad mode), per rank.
#pragma once
#include <utility>
#include <vector>

#include <cleave/autograd/gradient_rules.h>
#include <cleave/core/tensor.h>

namespace cleave::autograd {

/// The living result of redistributing x to `to`, or undefined.
Tensor recall(const Tensor& x, const LayoutData* to);
/// Remembers `result` for as long as it and x live. The innermost MemoScope keeps it alive.
void remember(const Tensor& x, const LayoutData* to, const Tensor& result);

/// `recall` whatever the grad mode was: the elements alone, off the tape.
Tensor recall_value(const Tensor& x, const LayoutData* to);

/// A redistribution whose result lives.
struct Remembered {
  Tensor source, result;
  const LayoutData* to = nullptr;
};
/// The one whose result x is or is a view of, if neither side was written since; undefined tensors otherwise.
Remembered remembered(const Tensor& x);

/// Numbers of nodes, from the first to before the last.
using NodeRange = std::pair<uint64_t, uint64_t>;

/// While it lives, results of nodes in these ranges are not recalled: they may have run backward already.
class ForgetNodes {
 public:
  explicit ForgetNodes(std::vector<NodeRange> ranges);
  ~ForgetNodes();
  ForgetNodes(const ForgetNodes&) = delete;
  ForgetNodes& operator=(const ForgetNodes&) = delete;
  /// Those in force.
  static const std::vector<NodeRange>& current();

 private:
  std::vector<NodeRange> before_;
};

/// Keeps results alive until it ends: the running `operator()` of a module.
class MemoScope {
 public:
  MemoScope();
  ~MemoScope();
  MemoScope(const MemoScope&) = delete;
  MemoScope& operator=(const MemoScope&) = delete;

 private:
  friend void remember(const Tensor&, const LayoutData*, const Tensor&);
  MemoScope* outer_;
  std::vector<Tensor> kept_;
};

}  // namespace cleave::autograd
