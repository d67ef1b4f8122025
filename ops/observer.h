// The span of a dispatched op, for observers.
#pragma once
#include <cleave/core/observer.h>
#include <cleave/ops/op.h>

namespace cleave {

/// One call of the dispatcher, with the redistributions of its inputs in it.
class OpSpan : public Span {
 public:
  OpSpan(const OpDef& op, Inputs in, std::span<const Tensor> out)
      : Span(SpanKind::op, op.name), op(op), in(in), out(out) {
    open();
  }
  ~OpSpan() { close(); }
  const OpDef& op;
  const Inputs in;
  const std::span<const Tensor> out;  ///< there when the span ends, unless the op threw
};

}  // namespace cleave
