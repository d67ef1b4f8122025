#include <cleave/dist/redistribute/blocks.h>

#include <algorithm>

#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::dist::steps {

namespace {

// Whether the pieces lie one after the other in the block's memory, from its first element on.
bool lie_packed(const Tensor& block, std::span<const Box> boxes) {
  const View& view = block.impl()->view;
  int64_t offset = 0;
  for (const Box& box : boxes) {
    int64_t n = numel(box.shape), at = 0;
    if (n == 0) continue;
    for (int d = 0; d < view.rank(); ++d) at += box.offset[d] * view.strides[d];
    if (at != offset || !is_contiguous(box.shape, view.strides)) return false;
    offset += n;
  }
  return true;
}

Pieces lay_out(const Tensor& block, std::span<const Box> boxes) {
  Pieces out;
  int64_t total = 0;
  for (const Box& box : boxes) {
    out.counts.push_back(numel(box.shape));
    total += out.counts.back();
  }
  if (lie_packed(block, boxes)) {
    out.data = block.impl()->view.data;
    return out;
  }
  cleave::detail::MemoryUseScope use(MemoryUse::communication);
  out.buffer = cleave::detail::make_tensor(Shape{total}, block.dtype(), block.device());
  out.data = out.buffer.impl()->view.data;
  return out;
}

// Calls f(piece in the block, piece in the buffer) for each that is not empty.
template <class F>
void for_pieces(const Pieces& pieces, const View& block, std::span<const Box> boxes, F&& f) {
  auto* at = static_cast<char*>(pieces.data);
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (pieces.counts[i] == 0) continue;
    View dense{at, block.dtype, boxes[i].shape, contiguous_strides(boxes[i].shape)};
    f(cleave::detail::sub_view(block, boxes[i].offset, boxes[i].shape), dense);
    at += pieces.counts[i] * size_of(block.dtype);
  }
}

}  // namespace

Box overlap(const Box& a, const Box& b) {
  Box out = a;
  bool empty = false;
  for (int d = 0; d < a.shape.rank(); ++d) {
    int64_t begin = std::max(a.offset[d], b.offset[d]);
    int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    out.offset[d] = begin;
    out.shape[d] = std::max<int64_t>(end - begin, 0);
    empty = empty || end <= begin;
  }
  if (empty) {  // an empty box starts at its container's start, so that it lies within it
    out.offset = a.offset;
    out.shape = Shape(a.shape.rank(), 0);
  }
  return out;
}

Box relative(const Box& box, const Box& origin) {
  Box out = box;
  for (int d = 0; d < box.shape.rank(); ++d) out.offset[d] = std::max<int64_t>(box.offset[d] - origin.offset[d], 0);
  return out;
}

Tensor make_block(const Tensor& x, const LayoutData* layout) {
  return cleave::detail::make_tensor(x.shape(), local_box(x.shape(), *layout).shape, x.dtype(), x.device(), layout,
                                     !layout->mesh->member());
}

Tensor relabel(const Tensor& x, const LayoutData* layout) {
  return cleave::detail::make_view(x, x.impl()->view, x.shape(), layout);
}

Pieces pack(const Tensor& block, std::span<const Box> boxes) {
  const View& view = cleave::detail::elements(block);
  Pieces out = lay_out(block, boxes);
  if (out.buffer.defined() && block.device() != Device::Meta)
    for_pieces(out, view, boxes,
               [&](const View& here, const View& packed) { cleave::detail::copy_view(block.device(), here, packed); });
  return out;
}

Pieces room(const Tensor& block, std::span<const Box> boxes) { return lay_out(block, boxes); }

void unpack(const Pieces& pieces, const View& block, std::span<const Box> boxes) {
  if (!pieces.buffer.defined() || pieces.buffer.device() == Device::Meta) return;
  Device device = pieces.buffer.device();
  for_pieces(pieces, block, boxes,
             [&](const View& here, const View& packed) { cleave::detail::copy_view(device, packed, here); });
}

}  // namespace cleave::dist::steps
