// The spans of backward, for observers.
#pragma once
#include <vector>

#include <cleave/autograd/node.h>
#include <cleave/core/observer.h>

namespace cleave::autograd {

/// One node of the tape running backward; named like the op or redistribution that it is of.
class NodeSpan : public Span {
 public:
  NodeSpan(const Node& node, const std::vector<Cotangent>& cotangents, const std::vector<Cotangent>& gradients)
      : Span(SpanKind::node, node.name()), node(node), cotangents(cotangents), gradients(gradients) {
    open();
  }
  ~NodeSpan() { close(); }
  const Node& node;
  const std::vector<Cotangent>& cotangents;  ///< by output of the node
  const std::vector<Cotangent>& gradients;   ///< by input of the node; there when the span ends
};

}  // namespace cleave::autograd
