#include <cleave/dist/redistribute/bucket.h>

#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/under_way.h>

namespace cleave::dist {

namespace {

using Coordinates = std::array<int, kMaxAxes>;

// A dense view of the next elements of a buffer.
View next_piece(char*& at, DType dtype, const Shape& shape) {
  View piece{at, dtype, shape, contiguous_strides(shape)};
  if (at) at += numel(shape) * size_of(dtype);
  return piece;
}

// The block of `member` under `split` as a box within that of this rank under `whole`.
Box part_of(const Shape& shape, const LayoutData& whole, const LayoutData& split, const Coordinates& member) {
  return steps::relative(local_box(shape, split, member), local_box(shape, whole));
}

bool has_elements(const Tensor& x) { return x.device() != Device::Meta; }

}  // namespace

AxisMask appended_axes(const LayoutData* whole, const LayoutData* split) {
  if (whole->mesh != split->mesh || whole->rank != split->rank || split->partial != whole->partial) return 0;
  AxisMask axes = 0;
  for (size_t d = 0; d < static_cast<size_t>(whole->rank); ++d) {
    const AxisList &before = whole->dims[d], &after = split->dims[d];
    if (after.size() < before.size()) return 0;
    for (int i = 0; i < after.size(); ++i) {
      if (i >= before.size())
        axes |= axis_bit(after[i]);
      else if (before[i] != after[i])
        return 0;
    }
  }
  return axes;
}

Scattered reduce_scatter_bucket(std::span<const Tensor> terms, std::span<const LayoutData* const> targets,
                                AxisMask axes, const char* label) {
  const LayoutData* first = terms[0].impl()->layout;
  const MeshState& mesh = *first->mesh;
  DType dtype = terms[0].dtype();
  Device device = terms[0].device();

  auto members = mesh.group(axes);
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const Coordinates& member : members) {
    int64_t n = 0;
    for (size_t i = 0; i < terms.size(); ++i) n += numel(local_box(terms[i].shape(), *targets[i], member).shape);
    counts.push_back(n);
    total += n;
  }
  Tensor packed = cleave::detail::make_tensor(Shape{total}, dtype, device);
  auto* at = static_cast<char*>(packed.impl()->view.data);
  if (has_elements(packed))
    for (const Coordinates& member : members)
      for (size_t i = 0; i < terms.size(); ++i) {
        Box box = part_of(terms[i].shape(), *terms[i].impl()->layout, *targets[i], member);
        View piece = next_piece(at, dtype, box.shape);
        if (piece.numel() == 0) continue;
        cleave::detail::copy_view(
            device, cleave::detail::sub_view(cleave::detail::elements(terms[i]), box.offset, box.shape), piece);
      }

  Scattered out;
  int64_t mine = 0;
  for (size_t i = 0; i < terms.size(); ++i) mine += numel(local_box(terms[i].shape(), *targets[i]).shape);
  out.memory = cleave::detail::make_tensor(Shape{mine}, dtype, device);
  at = static_cast<char*>(out.memory.impl()->view.data);
  for (size_t i = 0; i < terms.size(); ++i) {
    View piece = next_piece(at, dtype, local_box(terms[i].shape(), *targets[i]).shape);
    out.blocks.push_back(cleave::detail::make_view(out.memory, piece, terms[i].shape(), targets[i]));
  }

  Collective call{.kind = CollectiveKind::reduce_scatter,
                  .send = packed.impl()->view.data,
                  .recv = out.memory.impl()->view.data,
                  .send_counts = counts,
                  .dtype = dtype,
                  .op = first->op,
                  .device = device,
                  .label = label};
  if (mesh.world().overlaps() && has_elements(packed)) {
    auto started = mesh.background(axes).start(call);
    steps::Pieces sent{packed.impl()->view.data, counts, packed};
    steps::put_under_way(std::move(started), out.memory, {.sent = std::move(sent)});
  } else {
    mesh.communicator(axes).call(call);
  }
  return out;
}

void all_gather_bucket(std::span<const Tensor> blocks, std::span<const Tensor> whole, AxisMask axes,
                       const char* label) {
  const MeshState& mesh = *blocks[0].impl()->layout->mesh;
  DType dtype = blocks[0].dtype();
  Device device = blocks[0].device();

  auto members = mesh.group(axes);
  std::vector<int64_t> counts;
  int64_t total = 0, mine = 0;
  for (const Coordinates& member : members) {
    int64_t n = 0;
    for (const Tensor& b : blocks) n += numel(local_box(b.shape(), *b.impl()->layout, member).shape);
    counts.push_back(n);
    total += n;
  }
  for (const Tensor& b : blocks) mine += b.impl()->view.numel();
  Tensor packed = cleave::detail::make_tensor(Shape{mine}, dtype, device);
  Tensor received = cleave::detail::make_tensor(Shape{total}, dtype, device);
  auto* at = static_cast<char*>(packed.impl()->view.data);
  if (has_elements(packed))
    for (const Tensor& b : blocks) {
      View piece = next_piece(at, dtype, b.impl()->view.shape);
      if (piece.numel()) cleave::detail::copy_view(device, cleave::detail::elements(b), piece);
    }
  mesh.communicator(axes).call({.kind = CollectiveKind::all_gather,
                                .send = packed.impl()->view.data,
                                .recv = received.impl()->view.data,
                                .recv_counts = counts,
                                .dtype = dtype,
                                .device = device,
                                .label = label});
  if (!has_elements(packed)) return;
  at = static_cast<char*>(received.impl()->view.data);
  for (const Coordinates& member : members)
    for (size_t i = 0; i < blocks.size(); ++i) {
      Box box = part_of(whole[i].shape(), *whole[i].impl()->layout, *blocks[i].impl()->layout, member);
      View piece = next_piece(at, dtype, box.shape);
      if (piece.numel() == 0) continue;
      cleave::detail::copy_view(device, piece,
                                cleave::detail::sub_view(cleave::detail::elements(whole[i]), box.offset, box.shape));
    }
}

}  // namespace cleave::dist
