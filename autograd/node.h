// The tape: nodes, their edges, and the gradients that wait at them. For ops; users need <cleave/core/tensor.h>.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/gradient_precision.h>
#include <cleave/autograd/gradient_rules.h>
#include <cleave/autograd/slots.h>
#include <cleave/core/tensor_impl.h>

namespace cleave::autograd {

class Node;
struct Recipe;

/// A counted reference to a node.
class NodeRef {
 public:
  NodeRef() = default;
  explicit NodeRef(Node* adopted) : node_(adopted) {}
  NodeRef(const NodeRef& other);
  NodeRef(NodeRef&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  NodeRef& operator=(NodeRef other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~NodeRef();
  Node* get() const { return node_; }
  Node* operator->() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  Node* release() { return std::exchange(node_, nullptr); }

 private:
  Node* node_ = nullptr;
};

/// Where the gradient of a node's input goes: an output of an earlier node, a leaf, or nowhere.
struct Edge {
  NodeRef node;
  int output = 0;
  Tensor leaf;
  bool live() const { return static_cast<bool>(node) || leaf.defined(); }
};

/// What the engine knows of one output of a node.
struct OutputInfo {
  Shape global, local;
  DType dtype = DType::f32;
  Device device = Device::Cpu;
  const LayoutData* layout = nullptr;
  bool parameter = false;
  DType summed = DType::f32;  // dtype in which the terms of its gradient are summed
  Slots slots;                // during a backward run
};

/// One recorded operation. Nodes are numbered as they are made, so that a consumer's number is larger than its
/// producer's: running nodes by falling number runs each after all that feed it.
class Node {
 public:
  Node(const char* name, Producer kind) : name_(name), kind_(kind) {}
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const char* name() const { return name_; }
  Producer kind() const { return kind_; }
  uint64_t sequence() const { return sequence_; }
  /// The number of the newest node of this rank.
  static uint64_t newest();

  /// Records `x` as the next input: an edge to its producer or to it as a leaf, or no edge.
  void add_input(const Tensor& x);
  /// Makes `y` the next output of this node.
  void add_output(const Tensor& y, bool requires_grad = true);

  /// Gradients of the inputs (undefined where the edge is dead or nothing flows) from completed cotangents (undefined:
  /// zero). Values are this rank's blocks as plain tensors.
  virtual std::vector<Cotangent> backward(std::span<const Cotangent> outputs) = 0;
  /// Whether it has no backward of its own, but computes its outputs again: their terms go on through what `recompute`
  /// records.
  virtual bool recomputes() const { return false; }
  /// The outputs again, by position, on the tape.
  virtual std::vector<Tensor> recompute() { return {}; }
  /// Calls f for what it has saved as a recipe.
  virtual void each_recipe(const std::function<void(const Recipe&)>&) const {}
  /// Lets go of saved tensors; `backward` throws GradError from then on.
  virtual void release_saved() = 0;

  std::vector<Edge> inputs;
  std::vector<OutputInfo> outputs;
  const bool runs = saving_enabled();  // else it was recorded to be looked at only
  bool queued = false;                 // during a backward run
  bool last_run = false;  // this backward is the only one to come: saved tensors may be taken and written over

 protected:
  int live_inputs() const;
  void set_kind(Producer kind) { kind_ = kind; }

 private:
  friend class NodeRef;
  std::atomic<uint32_t> references_{1};
  uint64_t sequence_ = next_sequence();
  const char* name_;
  Producer kind_;
  static uint64_t next_sequence();
};

/// A tensor kept for backward, and the version that must still be there then.
struct SavedTensor {
  Tensor value;
  uint32_t version = 0;
  void save(const Tensor& x) {
    if (!saving_enabled()) return;
    value = x;
    version = x.version();
  }
  /// Throws GradError naming `op` if it was written in place since.
  const Tensor& get(const char* op) const;
};

/// The dtype in which gradients that go along `edge` are summed; `own` is that of the tensor.
DType summed_dtype(const Edge& edge, DType own);

/// Zeros `cotangent` (in a copy) on ranks other than the first along `axes`, and marks it partial there: the free way
/// from R to P.
void keep_on_first(Cotangent& cotangent, const LayoutData* layout, AxisMask axes);

/// Where the gradient of `x` goes: nowhere if it does not require grad.
Edge edge_of(const Tensor& x);
/// The meta of `x`, made if it has none.
detail::AutogradMeta& meta(const Tensor& x);
/// Whether an operation on these inputs is to be recorded.
bool should_record(std::span<const Tensor* const> inputs);

}  // namespace cleave::autograd

namespace cleave::detail {

struct AutogradMeta {
  bool requires_grad = false;
  autograd::NodeRef producer;
  int output = 0;
  // Of leaves:
  autograd::Slots slots;                              ///< terms not yet synced
  Tensor grad;                                        ///< synced, in the gradient layout
  const dist::LayoutData* gradient_layout = nullptr;  ///< null: the tensor's own, with partial axes reduced
  bool reduce_early = false;                          ///< into it in backward, as soon as the last term is there
  autograd::GradientPrecision precision = {};
  std::vector<std::function<Tensor(const Tensor&)>> hooks;
};

}  // namespace cleave::detail
