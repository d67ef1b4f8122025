#include <cleave/autograd/engine.h>
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/observer.h>
#include <cleave/autograd/recipe.h>
#include <cleave/autograd/reduce_buckets.h>
#include <cleave/autograd/sync.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/redistribution.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace cleave::autograd {
namespace {

struct ByLatest {
  bool operator()(const NodeRef& a, const NodeRef& b) const { return a->sequence() < b->sequence(); }
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options) : options_(options) {}
  ~Engine() {
    // After an error: what had been delivered must not reach a later run.
    if (running_) reset(*running_.get());
    for (; !queue_.empty(); queue_.pop()) reset(*queue_.top().get());
  }

  void deliver(const Edge& edge, Cotangent&& gradient) {
    if (edge.leaf.defined()) return deliver_to_leaf(edge.leaf, std::move(gradient));
    if (!gradient.value.defined()) return;
    if (edge.node) {
      Node& node = *edge.node.get();
      OutputInfo& output = node.outputs[static_cast<size_t>(edge.output)];
      output.slots.add(std::move(gradient), output.summed);
      if (!std::exchange(node.queued, true)) queue_.push(edge.node);
    }
  }

  /// Counts the terms that each leaf is to get from what `edges` lead to, through nodes made after number `from`.
  void expect(std::span<const Edge> edges, uint64_t from = 0) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> open;
    auto follow = [&](const Edge& edge) {
      if (edge.leaf.defined()) ++awaited_[edge.leaf.impl()];
      const Node* node = edge.node.get();
      if (node && node->sequence() > from && seen.insert(node).second) open.push_back(node);
    };
    for (const Edge& edge : edges) follow(edge);
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Edge& edge : node->inputs) follow(edge);
    }
  }

  /// Notes the recipes that nodes behind `edges` keep, to gather for one node while another computes.
  void look_ahead(std::span<const Edge> edges) {
    std::unordered_set<const Node*> seen;
    std::vector<NodeRef> open;
    auto follow = [&](const Edge& edge) {
      if (edge.node && seen.insert(edge.node.get()).second) open.push_back(edge.node);
    };
    for (const Edge& edge : edges) follow(edge);
    while (!open.empty()) {
      NodeRef node = std::move(open.back());
      open.pop_back();
      for (const Edge& edge : node->inputs) follow(edge);
      bool keeps = false;
      node->each_recipe([&](const Recipe&) { keeps = true; });
      if (keeps) ahead_.push_back(std::move(node));
    }
    std::sort(ahead_.begin(), ahead_.end(),
              [](const NodeRef& a, const NodeRef& b) { return !ByLatest()(a, b) && a.get() != b.get(); });
  }

  void run() {
    run_all();
    scatter_.finish();
  }

  std::vector<Tensor> leaves;

 private:
  void run_all() {
    while (!queue_.empty()) {
      running_ = queue_.top();
      queue_.pop();
      running_->queued = false;
      if (!running_->runs)
        throw GradError("[" + std::string(running_->name()) +
                        "] its result left a function that nn::checkpoint ran without keeping what backward needs; "
                        "let the function return it");
      start_next();
      if (running_->recomputes())
        recompute(*running_.get());
      else
        run_node(*running_.get());
      regathered_.drop(running_.get());
      if (!options_.retain_graph) running_->release_saved();
      running_ = {};
    }
  }

  // The gathers of the node with recipes that is next in line.
  void start_next() {
    for (; next_ < ahead_.size() && ahead_[next_]->sequence() >= running_->sequence(); ++next_) ahead_[next_] = {};
    if (next_ < ahead_.size()) ahead_[next_]->each_recipe([&](const Recipe& r) { regathered_.start(r); });
  }

  static void reset(Node& node) {
    node.queued = false;
    for (OutputInfo& o : node.outputs) o.slots.clear();
  }

  void run_node(Node& node) {
    std::vector<Cotangent> cotangents;
    cotangents.reserve(node.outputs.size());
    for (OutputInfo& o : node.outputs) {
      if (o.slots.empty()) {
        cotangents.emplace_back();
        continue;
      }
      AxisMask target = completed_mask(node.kind(), o.parameter, o.slots.any(), o.slots.all());
      cotangents.push_back(o.slots.merge(o.layout, target, node.name()));
      o.slots.clear();
    }
    std::vector<Cotangent> gradients;
    node.last_run = !options_.retain_graph;
    {
      NodeSpan span(node, cotangents, gradients);
      gradients = node.backward(cotangents);
    }
    for (size_t i = 0; i < gradients.size(); ++i)
      if (node.inputs[i].live()) deliver(node.inputs[i], std::move(gradients[i]));
  }

  // The node's terms go on, unmerged, through what computed its outputs again. That is newer than all that waits here,
  // so it runs next: in the order in which it would have run had it been kept.
  void recompute(Node& node) {
    std::vector<Slots> terms;
    for (OutputInfo& o : node.outputs) terms.push_back(std::exchange(o.slots, {}));
    node.last_run = !options_.retain_graph;
    std::vector<Tensor> results = node.recompute();
    std::vector<Edge> starts;
    for (size_t i = 0; i < terms.size(); ++i)
      if (!terms[i].empty()) starts.push_back(edge_of(results[i]));
    results.clear();
    if (options_.completed) {  // the terms to come were counted as of the first call; from here it is the second
      for (const Edge& edge : node.inputs)
        if (edge.leaf.defined()) --awaited_[edge.leaf.impl()];
      expect(starts, node.sequence());  // a remembered redistribution newer than the node has run, and runs once more
    }
    auto start = starts.begin();
    for (Slots& t : terms) {
      if (t.empty()) continue;
      const Edge& edge = *start++;
      edge.node->outputs[static_cast<size_t>(edge.output)].slots.take(std::move(t));
      if (!std::exchange(edge.node->queued, true)) queue_.push(edge.node);
    }
  }

  void deliver_to_leaf(const Tensor& leaf, Cotangent&& gradient) {
    if (gradient.value.defined() && gradient.held) return scatter_to_leaf(leaf, std::move(gradient));
    if (gradient.value.defined()) add_to_leaf(leaf, std::move(gradient));
    count_term(leaf);
  }

  // A term of what was gathered from a leaf: reduced to the leaf's blocks together with others (ZeRO-3).
  void scatter_to_leaf(const Tensor& leaf, Cotangent&& gradient) {
    if (options_.captured && wanted(leaf) == options_.wanted.end()) return count_term(leaf);
    const LayoutData* to = gradient_layout(leaf.impl()->layout, gradient.partial);
    scatter_.add({std::move(gradient.value), leaf.shape(), gradient.held, to, reduced_dtype(leaf), leaf.storage(),
                  [this, leaf, partial = gradient.partial](const Tensor& block) {
                    add_to_leaf(leaf, {block, partial});
                    count_term(leaf);
                  }});
  }

  void count_term(const Tensor& leaf) {
    if (options_.completed && --awaited_[leaf.impl()] == 0) options_.completed(leaf);
  }

  std::span<const Tensor>::iterator wanted(const Tensor& leaf) const {
    return std::find_if(options_.wanted.begin(), options_.wanted.end(),
                        [&](const Tensor& t) { return t.impl() == leaf.impl(); });
  }

  void add_to_leaf(const Tensor& leaf, Cotangent&& gradient) {
    Slots* slots = &meta(leaf).slots;
    if (options_.captured) {
      auto at = wanted(leaf);
      if (at == options_.wanted.end()) return;
      slots = &(*options_.captured)[static_cast<size_t>(at - options_.wanted.begin())];
    }
    std::erase_if(leaves, [&](const Tensor& t) { return t.impl() == leaf.impl(); });
    leaves.push_back(leaf);
    slots->add(std::move(gradient), kept_dtype(leaf));
  }

  const EngineOptions& options_;
  std::unordered_map<const detail::TensorImpl*, int> awaited_;  // terms still to come, by leaf
  std::vector<NodeRef> ahead_;                                  // nodes with recipes, latest first, while overlapping
  size_t next_ = 0;
  Regathered regathered_;
  ReduceBuckets scatter_{"gather backward"};
  NodeRef running_;
  std::priority_queue<NodeRef, std::vector<NodeRef>, ByLatest> queue_;
};

}  // namespace

std::vector<Tensor> run_backward(std::span<const Root> roots, const EngineOptions& options) {
  dist::PhaseScope phase("backward");
  NoGrad off;
  Engine engine(options);
  std::vector<Edge> starts;
  starts.reserve(roots.size());
  for (const Root& root : roots) starts.push_back(edge_of(root.tensor));
  if (options.completed) engine.expect(starts);
  if (overlapping()) engine.look_ahead(starts);
  for (size_t i = 0; i < roots.size(); ++i) engine.deliver(starts[i], Cotangent(roots[i].cotangent));
  starts.clear();  // a node goes when it has run
  engine.run();
  return std::move(engine.leaves);
}

Cotangent ones_cotangent(const Tensor& y, double value) {
  const View& block = y.impl()->view;
  Tensor seed = detail::make_tensor(block.shape, block.dtype, y.impl()->device);
  detail::fill_view(seed.device(), seed.impl()->view, value);
  return {seed, 0};
}

Cotangent conform_cotangent(const Tensor& y, const Tensor& cotangent) {
  if (!(cotangent.shape() == y.shape()))
    throw ShapeError("[backward] the cotangent is " + to_string(cotangent.type()) + " but the tensor is " +
                     to_string(y.type()) + "; pass one of the same shape");
  if (cotangent.dtype() != y.dtype())
    throw DTypeError("[backward] the cotangent is " + to_string(cotangent.type()) + " but the tensor is " +
                     to_string(y.type()) + "; cast it first");
  if (cotangent.is_distributed() != y.is_distributed())
    throw LayoutError("[backward] the cotangent is " + to_string(cotangent.type()) + " but the tensor is " +
                      to_string(y.type()) + "; use replicate(cotangent, mesh) or a plain tensor to match");
  if (!y.is_distributed()) return {cotangent.local(), 0};
  const LayoutData* layout = y.impl()->layout;
  AxisMask keep = cotangent.impl()->layout->mesh == layout->mesh
                      ? cotangent.impl()->layout->partial & replicated_axes(layout)
                      : AxisMask{0};
  Tensor placed = dist::redistribute_data(cotangent, gradient_layout(layout, keep), "backward");
  return {placed.local(), keep};
}

}  // namespace cleave::autograd
