#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribute/blocks.h>
#include <cleave/dist/redistribute/under_way.h>
#include <cleave/dist/together.h>

#include <algorithm>

namespace cleave::dist {
namespace {

using Coordinates = std::array<int, kMaxAxes>;

View dense_piece(const Tensor& buffer, int64_t at, const Shape& shape) {
  View piece{buffer.impl()->view.data, buffer.dtype(), shape, contiguous_strides(shape)};
  if (piece.data) piece.data = static_cast<char*>(piece.data) + at * size_of(piece.dtype);
  return piece;
}

// Where the block of `member` under `part` lies in this rank's block under `whole`.
Box box_within(const Shape& shape, const LayoutData* whole, const LayoutData* part, const Coordinates& member) {
  return steps::relative(local_box(shape, *part, member), local_box(shape, *whole));
}

// Memory that a collective over these axes copies nothing from or to, if there is any.
Tensor buffer_for(int64_t elements, DType dtype, Device device, const MeshState& mesh, AxisMask axes) {
  cleave::detail::MemoryUseScope use(MemoryUse::communication);
  if (device == Device::Cpu) {
    Communicator& ranks = mesh.communicator(axes);
    if (ranks.gains_by_shared_buffers())
      return cleave::detail::make_tensor({elements}, dtype, ranks.shared_buffer(elements * size_of(dtype)));
  }
  return cleave::detail::make_tensor({elements}, dtype, device);
}

}  // namespace

std::optional<AxisMask> further_axes(const LayoutData* whole, const LayoutData* part) {
  if (whole->mesh != part->mesh || whole->rank != part->rank) return {};
  AxisMask axes = 0;
  for (int d = 0; d < whole->rank; ++d) {
    const AxisList &outer = whole->dims[static_cast<size_t>(d)], &inner = part->dims[static_cast<size_t>(d)];
    if (inner.size() < outer.size() || !std::equal(outer.begin(), outer.end(), inner.begin())) return {};
    for (int i = outer.size(); i < inner.size(); ++i)
      if (whole->mesh->size(inner[i]) > 1) axes |= axis_bit(inner[i]);
  }
  return axes;
}

Tensor reduce_scatter_together(std::span<const ScatterItem> items, AxisMask axes, DType dtype, const char* label) {
  const MeshState& mesh = *items.front().from->mesh;
  Device device = items.front().block.device();
  std::vector<int64_t> counts;
  std::vector<std::pair<size_t, Box>> pieces;
  int64_t total = 0, mine = 0;
  for (const auto& member : mesh.group(axes)) {
    int64_t before = total;
    for (size_t i = 0; i < items.size(); ++i) {
      Box box = box_within(items[i].shape, items[i].from, items[i].to, member);
      total += numel(box.shape);
      if (numel(box.shape)) pieces.emplace_back(i, box);
    }
    counts.push_back(total - before);
  }
  for (const ScatterItem& item : items) mine += numel(local_box(item.shape, *item.to).shape);

  steps::Pieces packed;
  packed.buffer = buffer_for(total, dtype, device, mesh, axes);
  packed.data = packed.buffer.impl()->view.data;
  packed.counts = std::move(counts);
  int64_t at = 0;
  for (const auto& [i, box] : pieces) {
    const View& block = cleave::detail::elements(items[i].block);
    cleave::detail::copy_view(device, cleave::detail::sub_view(block, box.offset, box.shape),
                              dense_piece(packed.buffer, at, box.shape));
    at += numel(box.shape);
  }
  Tensor out = cleave::detail::make_tensor({mine}, dtype, device);
  Collective call{.kind = CollectiveKind::reduce_scatter,
                  .send = packed.data,
                  .recv = out.impl()->view.data,
                  .send_counts = packed.counts,
                  .dtype = dtype,
                  .device = device,
                  .label = label};
  if (mesh.world().overlaps()) {
    auto started = mesh.background(axes).start(call);
    steps::put_under_way(std::move(started), out, {.sent = std::move(packed)});
  } else {
    mesh.communicator(axes).call(call);
  }
  return out;
}

bool GatherBuckets::fits(const Tensor& part, const Tensor& whole) {
  const LayoutData *p = part.impl()->layout, *w = whole.impl()->layout;
  return p && w && !p->partial && !w->partial && further_axes(w, p).value_or(0);
}

void GatherBuckets::add(const Tensor& part, const Tensor& whole) {
  const LayoutData* to = whole.impl()->layout;
  if (!to->mesh->member()) return;
  Bucket kind{to->mesh, *further_axes(to, part.impl()->layout), whole.dtype()};
  int64_t bytes = numel(whole.shape()) * size_of(whole.dtype()) / to->mesh->size_of(to->split());
  auto bucket = std::find_if(open_.begin(), open_.end(), [&](const Bucket& b) {
    return b.mesh == kind.mesh && b.axes == kind.axes && b.dtype == kind.dtype &&
           b.items.front().whole.device() == whole.device();
  });
  if (bucket == open_.end()) {
    bucket = open_.insert(open_.end(), kind);
  } else if (bucket->bytes + bytes > limit_) {
    gather(*bucket);
    *bucket = kind;
  }
  bucket->items.push_back({part, whole});
  bucket->bytes += bytes;
}

void GatherBuckets::finish() {
  for (const Bucket& bucket : std::exchange(open_, {})) gather(bucket);
}

void GatherBuckets::gather(const Bucket& bucket) const {
  const MeshState& mesh = *bucket.mesh;
  Device device = bucket.items.front().whole.device();
  struct Piece {
    const Item* item;
    Box box;
  };
  std::vector<Piece> pieces;
  std::vector<int64_t> counts;
  int64_t total = 0, mine = 0, at = 0;
  for (const auto& member : mesh.group(bucket.axes)) {
    int64_t before = total;
    for (const Item& item : bucket.items) {
      Box box = box_within(item.whole.shape(), item.whole.impl()->layout, item.part.impl()->layout, member);
      total += numel(box.shape);
      if (numel(box.shape)) pieces.push_back({&item, box});
    }
    counts.push_back(total - before);
  }
  for (const Item& item : bucket.items) mine += item.part.impl()->view.numel();
  Tensor sent = buffer_for(mine, bucket.dtype, device, mesh, bucket.axes);
  for (const Item& item : bucket.items) {
    const View& block = cleave::detail::elements(item.part);
    cleave::detail::copy_view(device, block, dense_piece(sent, at, block.shape));
    at += block.numel();
  }
  Tensor received = buffer_for(total, bucket.dtype, device, mesh, bucket.axes);
  mesh.communicator(bucket.axes)
      .all_gather(sent.impl()->view.data, received.impl()->view.data, counts, bucket.dtype, device, label_);
  at = 0;
  for (const Piece& p : pieces) {
    const View& block = cleave::detail::elements(p.item->whole);
    cleave::detail::copy_view(device, dense_piece(received, at, p.box.shape),
                              cleave::detail::sub_view(block, p.box.offset, p.box.shape));
    at += numel(p.box.shape);
  }
  for (const Item& item : bucket.items) item.whole.bump_version();
}

}  // namespace cleave::dist
