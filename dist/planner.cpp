// The planner: Dijkstra's algorithm over the few layouts that lie between the two ends.
#include <algorithm>
#include <tuple>

#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/planner.h>

namespace cleave::dist {

namespace {

constexpr size_t kMaxLayouts = 600;  // pairs of them are priced: keeps a search in milliseconds

struct Node {
  LayoutData layout;
  int64_t block = 0;  // bytes
  // The best way here; compared in this order.
  int64_t picoseconds = -1;
  int64_t bytes = 0;
  int steps = 0;
  StepPrice last;
  size_t previous = 0;
  bool done = false;

  bool reached() const { return picoseconds >= 0; }
};

bool same(const LayoutData& a, const LayoutData& b) {
  return a.dims == b.dims && a.partial == b.partial && (a.op == b.op || a.partial == 0);
}

// The layouts between two ends: each axis in its place in either, or replicated; in every order on a dim.
class Between {
 public:
  Between(const Shape& global, DType dtype, const LayoutData& from, const LayoutData& to)
      : global_(global), dtype_(dtype), from_(from), to_(to) {
    bound_ = 2 * std::max(block_bytes(global, dtype, from), block_bytes(global, dtype, to));
    keep_common();
    add(from);
    add(to);
    if (!choose(0)) few();
  }

  std::vector<Node> nodes;
  int64_t bound() const { return bound_; }

 private:
  // The common head of the lists stays where it is.
  void keep_common() {
    LayoutData& base = base_;
    base = from_;
    base.partial = 0;
    AxisMask fixed = 0;
    for (size_t d = 0; d < static_cast<size_t>(from_.rank); ++d) {
      int n = 0;
      while (n < from_.dims[d].size() && n < to_.dims[d].size() && from_.dims[d][n] == to_.dims[d][n]) ++n;
      base.dims[d].truncate(n);
      head_[d] = n;
      fixed |= base.dims[d].mask();
    }
    for (int a = 0; a < static_cast<int>(from_.mesh->axes().size()); ++a)
      if (!(fixed & axis_bit(a))) free_.push_back(a);
  }

  void add(const LayoutData& layout) {
    for (size_t i = 0; i < std::min<size_t>(nodes.size(), 2); ++i)  // the only ones that could come twice
      if (same(nodes[i].layout, layout)) return;
    Node node;
    node.block = block_bytes(global_, dtype_, layout);
    if (node.block > bound_) return;
    node.layout = layout;
    nodes.push_back(node);
  }

  // Gives the i-th free axis each of its places in turn, then the rest theirs; false if there are too many.
  bool choose(int i) {
    if (i == free_.size()) {
      add(base_);
      return nodes.size() <= kMaxLayouts;
    }
    int axis = free_[i], before = from_.dim_of(axis), after = to_.dim_of(axis);
    bool partial_before = from_.partial & axis_bit(axis), partial_after = to_.partial & axis_bit(axis);
    bool stays_partial = partial_before && partial_after && from_.op == to_.op;
    if (!stays_partial && !choose(i + 1)) return false;  // replicated
    if (partial_before && !choose_partial(i, from_.op)) return false;
    if (partial_after && !stays_partial && !choose_partial(i, to_.op)) return false;
    if (before >= 0 && !choose_dim(i, before)) return false;
    return after < 0 || after == before || choose_dim(i, after);
  }
  bool choose_partial(int i, ReduceOp op) {
    if (base_.partial && base_.op != op) return true;  // one tensor has one operation
    base_.partial |= axis_bit(free_[i]);
    base_.op = op;
    bool fits = choose(i + 1);
    base_.partial &= ~axis_bit(free_[i]);
    return fits;
  }
  bool choose_dim(int i, int dim) {
    AxisList& list = base_.dims[static_cast<size_t>(dim)];
    const AxisList kept = list;
    for (int at = head_[static_cast<size_t>(dim)]; at <= kept.size(); ++at) {
      AxisList wider;
      for (int j = 0; j < kept.size(); ++j) {
        if (j == at) wider.push_back(free_[i]);
        wider.push_back(kept[j]);
      }
      if (at == kept.size()) wider.push_back(free_[i]);
      list = wider;
      if (!choose(i + 1)) return false;
    }
    list = kept;
    return true;
  }

  // On meshes of many axes: enough that a path within the bound exists.
  void few() {
    nodes.clear();
    add(from_);
    add(to_);
    bool same_op = from_.op == to_.op;
    LayoutData summed = from_;  // no partial sums but those that stay
    summed.partial = same_op ? from_.partial & to_.partial : 0;
    LayoutData unkept = to_;  // before keep-on-first
    unkept.partial = summed.partial;
    LayoutData uncut = unkept;  // before the cut of axes that `from` replicates
    for (size_t d = 0; d < static_cast<size_t>(to_.rank); ++d) {
      while (!uncut.dims[d].empty() && !(from_.split() & axis_bit(uncut.dims[d].back()))) uncut.dims[d].pop_back();
    }
    LayoutData cut = summed;  // that cut first
    AxisMask placed = from_.split() | summed.partial;
    for (size_t d = 0; d < static_cast<size_t>(to_.rank); ++d)
      for (int a : to_.dims[d])
        if (!(placed & axis_bit(a))) cut.dims[d].push_back(a);
    LayoutData scattered = from_;  // partial axes that go to a dim: reduce-scattered there
    scattered.partial = from_.partial;
    for (size_t d = 0; d < static_cast<size_t>(to_.rank); ++d)
      for (int a : to_.dims[d])
        if (from_.partial & axis_bit(a)) {
          scattered.dims[d].push_back(a);
          scattered.partial &= ~axis_bit(a);
        }
    for (const LayoutData* layout : {&summed, &unkept, &uncut, &cut, &scattered}) add(*layout);
  }

  const Shape& global_;
  DType dtype_;
  const LayoutData &from_, &to_;
  int64_t bound_ = 0;
  LayoutData base_;
  std::array<int, kMaxDims> head_{};
  AxisList free_;
};

bool better(const Node& node, int64_t picoseconds, int64_t bytes, int steps, StepKind kind) {
  return !node.reached() ||
         std::tie(picoseconds, bytes, steps, kind) < std::tie(node.picoseconds, node.bytes, node.steps, node.last.kind);
}

// The unfinished node that is nearest; `nodes.size()` if none is reached.
size_t nearest(const std::vector<Node>& nodes) {
  size_t best = nodes.size();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = nodes[i];
    if (n.done || !n.reached()) continue;
    if (best == nodes.size() || std::tie(n.picoseconds, n.bytes, n.steps) <
                                    std::tie(nodes[best].picoseconds, nodes[best].bytes, nodes[best].steps))
      best = i;
  }
  return best;
}

void relax(std::vector<Node>& nodes, size_t at, int64_t bound) {
  const Node here = nodes[at];
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& there = nodes[i];
    if (there.done || here.block + there.block > bound) continue;
    if (there.reached() && there.picoseconds < here.picoseconds) continue;
    auto step = price_step(here.layout, there.layout, here.block);
    if (!step) continue;
    int64_t picoseconds = here.picoseconds + step->picoseconds, bytes = here.bytes + step->bytes;
    if (nodes[1].reached() && picoseconds > nodes[1].picoseconds) continue;
    if (!better(there, picoseconds, bytes, here.steps + 1, step->kind)) continue;
    there.picoseconds = picoseconds;
    there.bytes = bytes;
    there.steps = here.steps + 1;
    there.last = *step;
    there.previous = at;
  }
}

}  // namespace

Path shortest_path(const Shape& global, DType dtype, const LayoutData* from, const LayoutData* to) {
  Path path;
  if (from == to) return path;
  Between between(global, dtype, *from, *to);
  std::vector<Node>& nodes = between.nodes;  // 0 is `from`, 1 is `to`
  path.layouts_considered = static_cast<int>(nodes.size());
  nodes[0].picoseconds = 0;
  while (!nodes[1].done) {
    size_t at = nearest(nodes);
    if (at == nodes.size()) throw LayoutError("there is no way between two layouts of a mesh; please report this");
    nodes[at].done = true;
    if (at != 1) relax(nodes, at, between.bound());
  }
  path.picoseconds = nodes[1].picoseconds;
  for (size_t i = 1; i != 0; i = nodes[i].previous) {
    const Node &node = nodes[i], &previous = nodes[node.previous];
    Step step;
    step.kind = node.last.kind;
    step.axes = node.last.axes;
    step.before = from->mesh->intern(previous.layout);
    step.after = from->mesh->intern(node.layout);
    step.bytes = node.last.bytes;
    step.link_bytes = node.last.link_bytes;
    step.seconds = static_cast<double>(node.last.picoseconds) * 1e-12;
    step.peak_bytes = previous.block + node.block;
    step.from_dim = node.last.from_dim;
    step.to_dim = node.last.to_dim;
    path.steps.push_back(step);
  }
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

}  // namespace cleave::dist
