#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/node.h>
#include <cleave/core/error.h>

namespace cleave {
namespace autograd {
namespace {

thread_local uint64_t last_sequence = 0;

// Chains of nodes are taken apart by a loop, not by recursion: a long recurrence would overflow the stack.
thread_local std::vector<Node*>* dying = nullptr;

void destroy_node(Node* node) {
  if (dying) {
    dying->push_back(node);
    return;
  }
  std::vector<Node*> pending{node};
  dying = &pending;
  while (!pending.empty()) {
    Node* next = pending.back();
    pending.pop_back();
    delete next;
  }
  dying = nullptr;
}

}  // namespace

NodeRef::NodeRef(const NodeRef& other) : node_(other.node_) {
  if (node_) node_->references_.fetch_add(1, std::memory_order_relaxed);
}

NodeRef::~NodeRef() {
  if (node_ && node_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_node(node_);
}

uint64_t Node::next_sequence() { return ++last_sequence; }
uint64_t Node::newest() { return last_sequence; }

Edge edge_of(const Tensor& x) {
  Edge edge;
  if (!x.defined() || !x.requires_grad()) return edge;
  detail::AutogradMeta& m = *x.impl()->autograd;
  if (m.producer) {
    edge.node = m.producer;
    edge.output = m.output;
  } else {
    edge.leaf = x;
  }
  return edge;
}

void Node::add_input(const Tensor& x) { inputs.push_back(edge_of(x)); }

void Node::add_output(const Tensor& y, bool requires_grad) {
  const detail::TensorImpl& impl = *y.impl();
  OutputInfo info;
  info.global = impl.global;
  info.local = impl.view.shape;
  info.dtype = impl.view.dtype;
  info.device = impl.device;
  info.layout = impl.layout;
  info.parameter = impl.parameter;
  info.summed = info.dtype;
  if (requires_grad && is_floating(info.dtype)) {
    detail::AutogradMeta& m = meta(y);
    m.requires_grad = true;
    references_.fetch_add(1, std::memory_order_relaxed);
    m.producer = NodeRef(this);
    m.output = static_cast<int>(outputs.size());
  }
  outputs.push_back(std::move(info));
}

int Node::live_inputs() const {
  int n = 0;
  for (const Edge& e : inputs) n += e.live() ? 1 : 0;
  return n;
}

const Tensor& SavedTensor::get(const char* op) const {
  if (value.defined() && value.version() != version)
    throw GradError("[" + std::string(op) + "] its backward needs " + to_string(value.type()) +
                    ", which was written in place since (version " + std::to_string(value.version()) + ", saved at " +
                    std::to_string(version) + "); write to a clone instead");
  return value;
}

DType summed_dtype(const Edge& edge, DType own) {
  if (edge.leaf.defined()) return kept_dtype(edge.leaf);
  return edge.node ? edge.node->outputs[static_cast<size_t>(edge.output)].summed : own;
}

void set_gradient_precision(const Tensor& leaf, GradientPrecision precision) {
  for (DType t : {precision.keep, precision.reduce})
    if (t != DType::f32 && !is_half(t))
      throw DTypeError("[set_gradient_precision] gradients are kept and reduced in f32, bf16 or f16, not in " +
                       std::string(to_string(t)));
  meta(leaf).precision = precision;
}

DType kept_dtype(const Tensor& leaf) {
  if (!is_half(leaf.dtype())) return leaf.dtype();
  const auto* m = leaf.impl()->autograd;
  return m ? m->precision.keep : DType::f32;
}

DType reduced_dtype(const Tensor& leaf) {
  if (leaf.dtype() == DType::f64) return DType::f64;
  const auto* m = leaf.impl()->autograd;
  return m ? m->precision.reduce : DType::f32;
}

detail::AutogradMeta& meta(const Tensor& x) {
  auto& slot = x.impl()->autograd;
  if (!slot) slot = new detail::AutogradMeta;
  return *slot;
}

bool should_record(std::span<const Tensor* const> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor* x : inputs)
    if (x->defined() && x->requires_grad()) return true;
  return false;
}

}  // namespace autograd

void detail::destroy(AutogradMeta* meta) noexcept { delete meta; }

}  // namespace cleave
