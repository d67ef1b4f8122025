// Which single step leads from one layout to another, and its price.
#include <cmath>

#include <cleave/dist/cost_model.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/planner.h>

namespace cleave::dist {

namespace {

// How two layouts differ, beyond the common head of every dim's list.
struct Difference {
  AxisMask left = 0;            // axes that leave their place in a list
  AxisMask joined = 0;          // axes that get a place
  int dims = 0;                 // dims whose list differs
  int shrunk = -1, grown = -1;  // the last dim whose list was only cut short / only made longer
  int other = 0;                // dims whose list changed otherwise
};

Difference compare(const LayoutData& from, const LayoutData& to) {
  Difference out;
  for (int d = 0; d < from.rank; ++d) {
    const AxisList &a = from.dims[static_cast<size_t>(d)], &b = to.dims[static_cast<size_t>(d)];
    int same = 0;
    while (same < a.size() && same < b.size() && a[same] == b[same]) ++same;
    if (same == a.size() && same == b.size()) continue;
    ++out.dims;
    for (int i = same; i < a.size(); ++i) out.left |= axis_bit(a[i]);
    for (int i = same; i < b.size(); ++i) out.joined |= axis_bit(b[i]);
    if (same == b.size())
      out.shrunk = d;
    else if (same == a.size())
      out.grown = d;
    else
      ++out.other;
  }
  return out;
}

// Whether a dim's tail moves as it is to the end of another dim's list.
bool is_tail_move(const LayoutData& from, const LayoutData& to, const Difference& diff) {
  if (diff.dims != 2 || diff.other || diff.shrunk < 0 || diff.grown < 0) return false;
  const AxisList &source = from.dims[static_cast<size_t>(diff.shrunk)],
                 &rest = to.dims[static_cast<size_t>(diff.shrunk)];
  const AxisList &target = to.dims[static_cast<size_t>(diff.grown)], &head = from.dims[static_cast<size_t>(diff.grown)];
  if (source.size() - rest.size() != target.size() - head.size()) return false;
  for (int i = 0; rest.size() + i < source.size(); ++i)
    if (source[rest.size() + i] != target[head.size() + i]) return false;
  return true;
}

// `whole` as the cost model wants it.
void set_price(StepPrice& out, CollectiveKind kind, int64_t ranks, int64_t whole) {
  out.link_bytes = std::llround(collective_traffic(kind, ranks, whole));
  out.picoseconds = std::llround(collective_seconds(kind, ranks, whole) * 1e12);
}

StepPrice priced(const MeshState& mesh, StepKind kind, AxisMask axes, const Difference& diff, CollectiveKind collective,
                 int64_t bytes) {
  StepPrice out{.kind = kind, .axes = axes, .from_dim = diff.shrunk, .to_dim = diff.grown};
  bool single = diff.dims == 1 || kind == StepKind::all_to_all;
  if (!single) out.from_dim = out.to_dim = -1;
  int64_t ranks = mesh.size_of(axes);
  if (ranks == 1) return out;
  out.bytes = bytes;
  set_price(out, collective, ranks, collective == CollectiveKind::all_gather ? bytes * ranks : bytes);
  return out;
}

StepPrice local(StepKind kind, AxisMask axes, const Difference& diff) {
  return {.kind = kind, .axes = axes, .to_dim = diff.dims == 1 ? diff.grown : -1};
}

}  // namespace

StepPrice price_exchange(int64_t ranks, int64_t bytes) {
  StepPrice out{.kind = StepKind::box_exchange};
  out.bytes = bytes;
  set_price(out, CollectiveKind::all_to_all, ranks, bytes);
  return out;
}

int64_t block_bytes(const Shape& global, DType dtype, const LayoutData& layout) {
  return numel(local_box(global, layout, {}).shape) * size_of(dtype);
}

std::optional<StepPrice> price_step(const LayoutData& from, const LayoutData& to, int64_t block) {
  if (from.partial && to.partial && from.op != to.op) return std::nullopt;
  const MeshState& mesh = *from.mesh;
  AxisMask reduced = from.partial & ~to.partial, kept = to.partial & ~from.partial;
  Difference diff = compare(from, to);
  if (kept) {
    if (reduced || diff.dims) return std::nullopt;
    return local(StepKind::keep_on_first, kept, diff);
  }
  if (reduced) {
    if (!diff.dims) return priced(mesh, StepKind::all_reduce, reduced, diff, CollectiveKind::all_reduce, block);
    if (diff.left || diff.joined != reduced) return std::nullopt;
    return priced(mesh, StepKind::reduce_scatter, reduced, diff, CollectiveKind::reduce_scatter, block);
  }
  if (!diff.left) return local(StepKind::cut, diff.joined, diff);
  if (!diff.joined) return priced(mesh, StepKind::all_gather, diff.left, diff, CollectiveKind::all_gather, block);
  // An axis that is replicated first would make several ranks senders of one element: it is cut in a step of its own.
  if (diff.joined & ~diff.left) return std::nullopt;
  // Every element goes to each rank that holds it afterwards.
  int64_t copies = mesh.size_of(diff.left & ~diff.joined);
  StepKind kind = is_tail_move(from, to, diff) ? StepKind::all_to_all : StepKind::box_exchange;
  return priced(mesh, kind, diff.left, diff, CollectiveKind::all_to_all, block * copies);
}

}  // namespace cleave::dist
