// The one dispatcher.
#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/ops/autocast.h>
#include <cleave/ops/observer.h>
#include <cleave/ops/op.h>
#include <cleave/ops/op_node.h>
#include <cleave/ops/row_cache.h>

#include <algorithm>
#include <memory>

namespace cleave {
namespace {

/// A copy of a call's attributes that `localize` may rewrite.
struct LocalAttributes {
  alignas(16) std::array<std::byte, 256> bytes;
  Attributes rewrite(const OpDef& op, Attributes given, const LocalizeCall& call) {
    if (!op.localize) return given;
    std::memcpy(bytes.data(), given.data(), given.size());
    op.localize(call, bytes.data());
    return {bytes.data(), given.size()};
  }
};

Tensor view_output(const OpDef& op, size_t output, const Tensor& x, const Shape& global, const Shape& local,
                   Attributes attributes, const dist::LayoutData* layout) {
  View view;
  if (op.view(x.impl()->view, output, local, attributes, view)) return detail::make_view(x, view, global, layout);
  Tensor copy = detail::dense_copy(x.local(), x.dtype());
  op.view(copy.impl()->view, output, local, attributes, view);
  Tensor out = detail::make_view(copy, view, global, layout);
  out.impl()->absent = x.impl()->absent;
  return out;
}

void run(const OpDef& op, Inputs in, Attributes attributes, std::span<Tensor> out) {
  if (op.memory_order)
    for (size_t i = 0; i < out.size(); ++i)
      if (Dims order = op.memory_order(i); !order.empty()) lay_out(out[i].impl()->view, order);
  if (out[0].impl()->absent) return;
  std::array<const View*, 16> few;
  std::vector<const View*> many;
  const View** views = few.data();
  if (in.size() > few.size()) {
    many.resize(in.size());
    views = many.data();
  }
  for (size_t i = 0; i < in.size(); ++i) views[i] = in[i]->defined() ? &detail::elements(*in[i]) : nullptr;
  std::array<const View*, kMaxOutputs> results;
  for (size_t i = 0; i < out.size(); ++i) results[i] = &out[i].impl()->view;
  launch(op.kernel, out[0].impl()->device, op.name, {{views, in.size()}, {results.data(), out.size()}, attributes});
}

void record(const OpDef& op, Inputs in, Attributes attributes, std::span<Tensor> out) {
  bool parameter = !in.empty();
  for (const Tensor* x : in) parameter = parameter && (!x->defined() || x->impl()->parameter);
  if (parameter)
    for (Tensor& y : out) y.impl()->parameter = true;
  if (op.backward && autograd::should_record(in)) autograd::NodeRef node(new OpNode(op, attributes, in, out));
}

Device common_device(const OpDef& op, Inputs in) {
  const Tensor* first = nullptr;
  for (const Tensor* x : in) {
    if (!x->defined()) continue;
    if (!first) first = x;
    if (x->impl()->device != first->impl()->device)
      throw ValueError(op_message(op.name, "mixes " + to_string(first->type()) + " on " +
                                               std::string(to_string(first->device())) + " and " +
                                               to_string(x->type()) + " on " + std::string(to_string(x->device())) +
                                               "; make both on one, as by {.device = x.device()}"));
  }
  return first ? first->impl()->device : Device::Cpu;
}

void dispatch_plain(const OpDef& op, Inputs in, Attributes given, std::span<const OutputType> types,
                    std::span<Tensor> out) {
  LocalAttributes local;
  std::array<const dist::LayoutData*, 16> none{};
  Attributes attributes =
      op.localize
          ? local.rewrite(op, given,
                          {in, types, {none.data(), std::min(in.size(), none.size())}, {none.data(), types.size()}})
          : given;
  if (op.view) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = view_output(op, i, *in[0], types[i].shape, types[i].shape, attributes, nullptr);
  } else {
    Device device = common_device(op, in);
    for (size_t i = 0; i < out.size(); ++i) out[i] = detail::make_tensor(types[i].shape, types[i].dtype, device);
    run(op, in, attributes, out);
  }
  record(op, in, attributes, out);
}

const dist::MeshState& common_mesh(const OpDef& op, Inputs in) {
  const Tensor *first = nullptr, *plain = nullptr;
  for (const Tensor* x : in) {
    if (!x->defined()) continue;
    if (!x->is_distributed()) {
      plain = x;
      continue;
    }
    if (!first) first = x;
    if (x->impl()->layout->mesh != first->impl()->layout->mesh)
      throw LayoutError(op_message(op.name, "its inputs are on two meshes: " + describe(first->type()) + " and " +
                                                describe(x->type()) +
                                                "; use redistribute(x, layout) to bring them to one"));
  }
  if (plain)
    throw LayoutError(op_message(op.name, "mixes the distributed " + describe(first->type()) + " and the plain " +
                                              to_string(plain->type()) + "; use replicate(x, mesh) on the plain one"));
  return *first->impl()->layout->mesh;
}

Tensor placed(const OpDef& op, const Tensor& x, const dist::LayoutData* to) {
  if (x.impl()->layout == to) return x;
  if (dist::implicit_redistribution_forbidden()) {
    TensorType wanted = x.type();
    wanted.layout = to;
    throw LayoutError(
        op_message(op.name, "needs " + describe(x.type()) + " as " + to_string(wanted) +
                                " and implicit redistribution is forbidden; call redistribute(x, layout) first"));
  }
  return autograd::redistribute_taped(x, to, op.name);
}

void dispatch_distributed(const OpDef& op, Inputs in, Attributes given, std::span<const OutputType> types,
                          std::span<Tensor> out) {
  const dist::MeshState& mesh = common_mesh(op, in);
  const CachedRow& row = cached_row(op, in, given, types, mesh);
  std::vector<Tensor> moved;  // keeps redistributed inputs alive
  std::vector<const Tensor*> inputs(in.begin(), in.end());
  if (row.moves) {
    moved.reserve(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i]->defined() || row.row.in[i] == in[i]->impl()->layout) continue;
      moved.push_back(placed(op, *in[i], row.row.in[i]));
      inputs[i] = &moved.back();
    }
  }
  if (row.row.decompose) {
    dist::ForbidImplicitRedistribution allow(false);
    op.decompose(inputs, given, out);
    return;
  }
  LocalAttributes local;
  Attributes attributes = local.rewrite(op, given, {inputs, types, row.row.in, row.row.out});
  bool absent = !mesh.member();
  if (op.view && !absent) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = view_output(op, i, *inputs[0], types[i].shape, row.local[i], attributes, row.row.out[i]);
  } else {
    Device device = absent ? Device::Meta : common_device(op, inputs);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = detail::make_tensor(types[i].shape, absent ? Shape(types[i].shape.rank(), 0) : row.local[i],
                                   types[i].dtype, device, row.row.out[i], absent);
    run(op, inputs, attributes, out);
  }
  record(op, inputs, attributes, out);
}

bool any_distributed(Inputs in) {
  for (const Tensor* x : in)
    if (x->defined() && x->impl()->layout) return true;
  return false;
}

}  // namespace

namespace {
void dispatch_as_given(const OpDef& op, Inputs in, Attributes attributes, std::span<Tensor> out) {
  OpSpan span(op, in, out);
  static_assert(std::is_trivially_destructible_v<OutputType>);
  alignas(OutputType) std::byte room[kMaxOutputs * sizeof(OutputType)];  // made only as far as it is used
  auto* types = reinterpret_cast<OutputType*>(room);
  std::uninitialized_default_construct_n(types, out.size());
  std::span<OutputType> used(types, out.size());
  op.infer({op, in, attributes}, used);
  if (any_distributed(in))
    dispatch_distributed(op, in, attributes, used, out);
  else
    dispatch_plain(op, in, attributes, used, out);
}
}  // namespace

void dispatch(const OpDef& op, Inputs in, Attributes attributes, std::span<Tensor> out) {
  if (detail::AutocastState* state = detail::autocast_state) [[unlikely]] {
    detail::AutocastPause within;
    detail::AutocastInputs cast(op, in, *state);
    dispatch_as_given(op, cast.inputs(), attributes, out);
  } else {
    dispatch_as_given(op, in, attributes, out);
  }
}

Tensor apply_list(const OpDef& op, Attributes attributes, std::span<const Tensor> in) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& x : in) inputs.push_back(&x);
  Tensor out;
  dispatch(op, inputs, attributes, {&out, 1});
  return out;
}

}  // namespace cleave
