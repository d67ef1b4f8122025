#include <cleave/autograd/memo.h>
#include <cleave/autograd/node.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/internal/checks.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>

namespace cleave {
namespace autograd {
namespace {

class RedistributeNode : public Node {
 public:
  RedistributeNode(const LayoutData* from, const LayoutData* to, const char* label)
      : Node(label, Producer::redistribution), from_(from), to_(to) {}

  std::vector<Cotangent> backward(std::span<const Cotangent> cotangents) override {
    const Cotangent& g = cotangents[0];
    if (!g.value.defined()) return {Cotangent{}};
    const OutputInfo& out = outputs[0];
    const LayoutData* target = redistribution_gradient(from_, to_, g.partial);
    // What goes to a leaf is not needed at once: it shares collectives with others.
    if (inputs[0].leaf.defined() && from_->mesh == to_->mesh)
      return {Cotangent{g.value, target->partial, gradient_layout(to_, g.partial)}};
    Tensor placed = detail::make_view(g.value, g.value.impl()->view, out.global, gradient_layout(to_, g.partial));
    placed.impl()->absent = !to_->mesh->member();
    return {Cotangent{dist::redistribute_data(placed, target, name()).local(), target->partial}};
  }
  void release_saved() override {}

 private:
  const LayoutData *from_, *to_;
};

}  // namespace

Tensor redistribute_taped(const Tensor& x, const LayoutData* to, const char* label, bool again) {
  if (x.impl()->layout == to) return x;
  if (Tensor known = recall(x, to); known.defined()) return known;
  return tape_redistribution(x, to, dist::redistribute_data(x, to, label), label, again);
}

Tensor tape_redistribution(const Tensor& x, const LayoutData* to, Tensor y, const char* label, bool again) {
  // A cut may come back as the storage of x: a handle of its own carries the tape.
  if (y.impl() == x.impl() || y.impl()->autograd) y = y.detach();
  if (y.storage() != x.storage()) y.impl()->storage->mark_redistributed();
  y.impl()->parameter = x.impl()->parameter;
  const Tensor* inputs[] = {&x};
  if (should_record(inputs)) {
    NodeRef node(new RedistributeNode(x.impl()->layout, to, label));
    node->add_input(x);
    node->add_output(y);
    if (node->inputs[0].leaf.defined()) node->outputs[0].summed = kept_dtype(x);
  }
  remember(x, to, y, again);
  return y;
}

}  // namespace autograd

namespace dist {
namespace {

thread_local bool forbidden = false;

void require_distributed(const char* op, const Tensor& x) {
  if (!x.is_distributed())
    throw LayoutError("[" + std::string(op) + "] " + to_string(x.type()) +
                      " is a plain tensor; use distribute(x, layout) or replicate(x, mesh) first");
}

void require_plain(const char* op, const Tensor& x) {
  if (x.is_distributed())
    throw LayoutError("[" + std::string(op) + "] " + describe(x.type()) +
                      " is distributed already; use redistribute(x, layout)");
  if (x.requires_grad())
    throw GradError("[" + std::string(op) + "] " + to_string(x.type()) +
                    " requires grad, and the result would be a leaf of its own; pass x.detach() and call "
                    "set_requires_grad() on the result");
}

uint64_t hash_block(const Tensor& x) {
  Tensor d = cleave::detail::dense(x);
  uint64_t h = 1469598103934665603ull;
  auto* bytes = static_cast<const unsigned char*>(cleave::detail::elements(d).data);
  int64_t n = d.impl()->view.numel() * size_of(d.dtype());
  for (int64_t i = 0; i < n; ++i) h = (h ^ bytes[i]) * 1099511628211ull;
  return h;
}

// All ranks must hold the same value.
void compare_values(const char* op, const Tensor& x, const MeshState& mesh) {
  if (!checked_mode() || !mesh.member() || x.device() != Device::Cpu) return;
  const int64_t hash[] = {static_cast<int64_t>(hash_block(x))};
  if (!detail::same_on_all(mesh, hash, op))
    throw CommError("[" + std::string(op) + "] the ranks hold different values of " + to_string(x.type()) +
                    "; every rank must pass the same one (the same seed or file), or use from_local(block, layout)");
}

Tensor leaf_of(const Tensor& block, const Shape& global, const LayoutData* layout) {
  Tensor out = cleave::detail::make_view(block, block.impl()->view, global, layout);
  out.impl()->absent = !layout->mesh->member();
  return out;
}

Tensor absent_tensor(const Shape& global, DType dtype, const LayoutData* layout) {
  return cleave::detail::make_tensor(global, Shape(global.rank(), 0), dtype, Device::Meta, layout, true);
}

}  // namespace

Tensor redistribute(const Tensor& x, Layout to) {
  require_distributed("redistribute", x);
  return autograd::redistribute_taped(x, to.resolve(x.dim()).data(), "redistribute");
}

Tensor distribute(const Tensor& x, Layout to) {
  require_plain("distribute", x);
  const LayoutData* layout = to.resolve(x.dim()).data();
  const MeshState& mesh = *layout->mesh;
  if (!mesh.member()) return absent_tensor(x.shape(), x.dtype(), layout);
  compare_values("distribute", x, mesh);
  const LayoutData* whole = to.mesh().replicated(x.dim()).data();
  Tensor r = leaf_of(x, x.shape(), whole);
  if (whole == layout) return r;
  Tensor cut = redistribute_data(r, layout, "distribute");
  // A leaf of its own storage: writing to it must not reach the plain tensor's other blocks, nor keep them alive.
  return leaf_of(cleave::detail::dense_copy(cut.local(), x.dtype()), x.shape(), layout);
}

Tensor replicate(const Tensor& x, DeviceMesh mesh) {
  require_plain("replicate", x);
  return distribute(x, mesh.replicated(x.dim()));
}

Tensor from_local(const Tensor& block, Layout layout, const Shape& shape) {
  require_plain("from_local", block);
  const LayoutData* l = layout.resolve(shape.rank()).data();
  const MeshState& mesh = *l->mesh;
  if (!mesh.member()) return absent_tensor(shape, block.dtype(), l);
  Box box = local_box(shape, *l);
  int64_t bad = box.shape == block.shape() ? 0 : 1;
  mesh.communicator(mesh.all_axes()).all_reduce(&bad, 1, DType::i64, ReduceOp::max, Device::Cpu, "from_local");
  if (bad)
    throw ShapeError("[from_local] on some rank the block is not the balanced one of " +
                     describe({block.dtype(), shape, l}) + "; this rank has " + to_string(block.shape()) +
                     " and should have " + to_string(box.shape));
  return leaf_of(block, shape, l);
}

Tensor from_local(const Tensor& block, Layout layout) {
  const LayoutData* l = layout.resolve(block.dim()).data();
  const MeshState& mesh = *l->mesh;
  if (!mesh.member())
    throw LayoutError("[from_local] a rank outside " + to_string(layout.mesh()) + " must pass the shape");
  Shape shape = block.shape();
  for (int d = 0; d < l->rank; ++d) {
    AxisMask axes = l->dims[static_cast<size_t>(d)].mask();
    if (axes) mesh.communicator(axes).all_reduce(&shape[d], 1, DType::i64, ReduceOp::sum, Device::Cpu, "from_local");
  }
  int64_t range[2 * kMaxDims];
  for (int d = 0; d < shape.rank(); ++d) {
    range[2 * d] = shape[d];
    range[2 * d + 1] = -shape[d];
  }
  mesh.communicator(mesh.all_axes())
      .all_reduce(range, 2 * shape.rank(), DType::i64, ReduceOp::max, Device::Cpu, "from_local");
  for (int d = 0; d < shape.rank(); ++d)
    if (range[2 * d] != -range[2 * d + 1])
      throw ShapeError("[from_local] the ranks' blocks do not fit together: dim " + std::to_string(d) + " adds up to " +
                       std::to_string(range[2 * d]) + " on one rank and to " + std::to_string(-range[2 * d + 1]) +
                       " on another; pass the global shape");
  return from_local(block, layout, shape);
}

Tensor full_tensor(const Tensor& x) {
  if (!x.is_distributed()) return x;
  if (!x.impl()->layout->mesh->member())
    throw LayoutError("[full_tensor] this rank is outside the mesh of " + describe(x.type()) +
                      "; redistribute it to a mesh with this rank first");
  return redistribute_data(x, x.layout().mesh().replicated(x.dim()).data(), "full_tensor").local();
}

ForbidImplicitRedistribution::ForbidImplicitRedistribution(bool forbid) : before_(std::exchange(forbidden, forbid)) {}
ForbidImplicitRedistribution::~ForbidImplicitRedistribution() { forbidden = before_; }
bool implicit_redistribution_forbidden() { return forbidden; }

}  // namespace dist
}  // namespace cleave
