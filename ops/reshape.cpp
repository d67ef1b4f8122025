// reshape, flatten, squeeze, unsqueeze: the same elements in row-major order under other sizes.
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/op.h>
#include <cleave/ops/view.h>

#include <algorithm>

namespace cleave {
namespace ops {
namespace {

using dist::AxisList;
using dist::LayoutData;

struct ReshapeAttributes {
  int64_t n = 0;
  int64_t v[kMaxDims] = {};
  Shape shape() const {
    Shape s;
    for (int64_t i = 0; i < n; ++i) s.push_back(v[i]);
    return s;
  }
};

void infer_reshape(const InferCall& call, std::span<OutputType> out) {
  out[0] = {call.dtype(0), call.attributes.as<ReshapeAttributes>().shape()};
}

// The order in which a block's elements lie in the whole, as runs: (length, stride) from major to minor, and the first
// element. Two blocks with equal runs hold the same elements in the same order.
struct Runs {
  int64_t first = 0;
  std::vector<std::pair<int64_t, int64_t>> levels;
  bool empty = false;
  friend bool operator==(const Runs& a, const Runs& b) {
    return (a.empty && b.empty) || (a.empty == b.empty && a.first == b.first && a.levels == b.levels);
  }
};

Runs runs_of(const Shape& global, const dist::Box& box) {
  Runs r;
  Strides strides = contiguous_strides(global);
  for (int d = 0; d < global.rank(); ++d) {
    int64_t n = box.shape[d], s = strides[d];
    if (n == 0) r.empty = true;
    r.first += box.offset[d] * s;
    if (n <= 1) continue;
    if (!r.levels.empty() && r.levels.back().second == n * s)
      r.levels.back() = {r.levels.back().first * n, s};
    else
      r.levels.emplace_back(n, s);
  }
  return r;
}

// Whether every rank holds the same elements in the same order under both layouts.
bool coincide(const Shape& a, const LayoutData& la, const Shape& b, const LayoutData& lb) {
  const dist::MeshState& mesh = *la.mesh;
  for (size_t i = 0; i < mesh.ranks().size(); ++i) {
    auto at = mesh.coordinates_of(static_cast<int>(i));
    if (!(runs_of(a, dist::local_box(a, la, at)) == runs_of(b, dist::local_box(b, lb, at)))) return false;
  }
  return true;
}

// Deals the axes of `given`, in order, to the dims of `to` (each dim takes a run of them, dims ascending) until the
// blocks coincide.
bool deal(const std::vector<int>& axes, size_t next, int dim, const Shape& from, const LayoutData& lx, const Shape& to,
          LayoutData& ly) {
  if (next == axes.size()) return coincide(from, lx, to, ly);
  for (int d = dim; d < to.rank(); ++d) {
    ly.dims[static_cast<size_t>(d)].push_back(axes[next]);
    if (deal(axes, next + 1, d, from, lx, to, ly)) return true;
    ly.dims[static_cast<size_t>(d)].pop_back();
  }
  return false;
}

std::vector<int> axes_in_order(const LayoutData& l) {
  std::vector<int> out;
  for (int d = 0; d < l.rank; ++d)
    for (int a : l.dims[static_cast<size_t>(d)]) out.push_back(a);
  return out;
}

// The blocks stay where they are if some split of the new dims coincides with them. Otherwise the minor-most axis of
// the last split dim is gathered and the rest tried again: a reshape is never refused.
LayoutRow reshape_row(const RuleCall& call) {
  const Shape &from = call.in[0].shape, &to = call.out[0].shape;
  LayoutData x = *call.in[0].layout;
  while (true) {
    LayoutData y;
    y.mesh = x.mesh;
    y.rank = static_cast<int8_t>(to.rank());
    y.partial = x.partial;
    y.op = x.op;
    if (deal(axes_in_order(x), 0, 0, from, x, to, y)) return {{x.mesh->intern(x)}, {x.mesh->intern(y)}};
    int last = x.rank - 1;
    while (x.dims[static_cast<size_t>(last)].empty()) --last;
    x.dims[static_cast<size_t>(last)].pop_back();
  }
}

// Strides for `out` over x's elements, if one exists without a copy: dims are matched group by group.
bool reshape_view(const View& x, size_t, const Shape& out, const Attributes&, View& result) {
  result = x;
  result.shape = out;
  result.strides = contiguous_strides(out);
  if (x.contiguous() || x.numel() == 0) return true;
  int i = 0, j = 0;
  while (i < x.rank() || j < out.rank()) {
    int i0 = i, j0 = j;
    int64_t a = i < x.rank() ? x.shape[i++] : 1, b = j < out.rank() ? out[j++] : 1;
    while (a != b) {
      if (a < b)
        a *= x.shape[i++];
      else
        b *= out[j++];
    }
    // Within a group the input must be one dense run; its innermost stride goes to the new dims.
    int64_t inner = 0, expected = -1;
    for (int d = i - 1; d >= i0; --d) {
      if (x.shape[d] == 1) continue;
      if (expected < 0)
        inner = x.strides[d];
      else if (x.strides[d] != expected)
        return false;
      expected = x.strides[d] * x.shape[d];
    }
    int64_t step = inner;
    for (int d = j - 1; d >= j0; --d) {
      result.strides[d] = step;
      step *= out[d];
    }
  }
  return true;
}

void reshape_backward(const BackwardCall& c, std::span<Tensor> out) {
  View v;
  const Tensor& g = c.grads[0];
  if (reshape_view(g.impl()->view, 0, c.input_shape(0), c.attributes, v)) {
    out[0] = detail::make_view(g, v, v.shape, nullptr);
    return;
  }
  Tensor copy = detail::dense_copy(g, g.dtype());
  reshape_view(copy.impl()->view, 0, c.input_shape(0), c.attributes, v);
  out[0] = detail::make_view(copy, v, v.shape, nullptr);
}

std::vector<Sample> reshape_samples() {
  std::vector<Sample> out;
  const std::pair<Shape, Shape> cases[] = {{{6, 5}, {30}},         {{6, 4}, {8, 3}},   {{2, 3, 4}, {2, 12}},
                                           {{2, 8, 4}, {16, 4}},   {{12}, {3, 4}},     {{4, 6}, {2, 2, 6}},
                                           {{2, 3, 4}, {2, 3, 4}}, {{1, 6}, {6}},      {{}, {1, 1}},
                                           {{0, 3}, {3, 0}},       {{5, 1, 2}, {5, 2}}};
  for (const auto& [from, to] : cases) {
    ReshapeAttributes a;
    a.n = to.rank();
    std::copy(to.begin(), to.end(), a.v);
    out.push_back({.inputs = {{from}}, .attributes = sample_attributes(a), .integers = true});
  }
  return out;
}

}  // namespace

extern const OpDef reshape{
    .name = "reshape",
    .infer = infer_reshape,
    .layout = reshape_row,
    .key_bytes = sizeof(ReshapeAttributes),
    .view = reshape_view,
    .backward = reshape_backward,
    .cost = [](std::span<const View* const>, std::span<const View* const>, const Attributes&) { return Cost{}; },
    .samples = reshape_samples};

}  // namespace ops

namespace {
Tensor reshaped(const Tensor& x, const Shape& shape) {
  ops::ReshapeAttributes a;
  a.n = shape.rank();
  std::copy(shape.begin(), shape.end(), a.v);
  return apply(ops::reshape, a, x);
}
}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  Shape wanted = shape;
  int64_t known = 1, open = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == -1 && open < 0)
      open = d;
    else
      known *= shape[d];
  }
  if (open >= 0 && known > 0 && numel(x) % known == 0) wanted[open] = numel(x) / known;
  bool negative = std::any_of(wanted.begin(), wanted.end(), [](int64_t n) { return n < 0; });
  if (negative || numel(wanted) != numel(x))
    throw ShapeError(op_message("reshape", describe(x.type()) + " with " + std::to_string(numel(x)) +
                                               " elements does not reshape to " + to_string(shape)));
  return reshaped(x, wanted);
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  if (x.dim() == 0) return reshaped(x, {1});
  int64_t a = wrap_dim("flatten", start, x.type()), b = wrap_dim("flatten", end, x.type());
  if (a > b)
    throw ShapeError(op_message("flatten", "dim " + std::to_string(start) + " comes after dim " + std::to_string(end)));
  Shape shape;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d > a && d <= b)
      shape[a] *= x.shape()[d];
    else
      shape.push_back(x.shape()[d]);
  }
  return reshaped(x, shape);
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  int64_t d = dim < 0 ? dim + x.dim() + 1 : dim;
  if (d < 0 || d > x.dim())
    throw ShapeError(
        op_message("unsqueeze", "dim " + std::to_string(dim) + " is out of range for " + describe(x.type())));
  Shape shape = x.shape();
  shape.insert(d, 1);
  return reshaped(x, shape);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  int64_t d = wrap_dim("squeeze", dim, x.type());
  if (x.shape()[d] != 1) return x;
  Shape shape = x.shape();
  shape.erase(d);
  return reshaped(x, shape);
}

}  // namespace cleave
