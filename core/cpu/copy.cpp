// Copies, conversions and fills.
#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/turned.h>

#include <bit>
#include <cstring>

namespace cleave::cpu {
namespace {

constexpr int64_t kGrain = kBlock * kGrainBlocks;

// The index of the loops for elements of this size.
int kind_of(DType t) { return std::countr_zero(static_cast<uint64_t>(size_of(t))); }

// The dim that is dense in src while the innermost is dense in dst, else -1.
int turned_dim(const PairedDimensions& p) {
  constexpr int64_t kShort = 8;
  int inner = p.rank() - 1;
  if (p.to.stride[inner] != 1 || p.from.stride[inner] <= 1 || p.to.size[inner] < kShort) return -1;
  for (int d = 0; d < inner; ++d)
    if (p.from.stride[d] == 1 && p.to.size[d] >= kShort) return d;
  return -1;
}

void copy_turned(PairedDimensions p, int dim, const char* src, char* dst, int64_t item, int kind) {
  constexpr int64_t kStrip = 64;  // rows of dst per task
  auto columns = p.take(p.rank() - 1);
  auto rows = p.take(dim);
  int64_t strips = (rows.size + kStrip - 1) / kStrip, outer = p.to.count();
  auto transpose = CLEAVE_PICK(convert_loops).transpose[kind];
  int64_t grain = std::max<int64_t>(1, kGrain / (kStrip * columns.size));
  parallel_for(outer * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t first = t % strips * kStrip, now = std::min(kStrip, rows.size - first);
      const char* from = src + (p.from.offset(t / strips) + first) * item;
      char* to = dst + (p.to.offset(t / strips) + first * rows.to) * item;
      transpose(from, columns.from, now, columns.size, to, rows.to);
    }
  });
}

void copy_rows(PairedDimensions p, const char* src, char* dst, int64_t item, int kind) {
  auto row = p.take(p.rank() - 1);
  int64_t pieces = (row.size + kGrain - 1) / kGrain, outer = p.to.count();
  auto run = CLEAVE_PICK(convert_loops).copy[kind];
  int64_t grain = std::max<int64_t>(1, kGrain / row.size);
  if (pieces > 1) p.add({pieces, kGrain * row.from, kGrain * row.to});
  parallel_for(outer * pieces, grain, [&](int64_t begin, int64_t end) {
    int64_t task = begin;
    p.for_each(begin, end, [&](int64_t from, int64_t to) {
      int64_t now = std::min(kGrain, row.size - task++ % pieces * kGrain);
      run(src + from * item, row.from, now, dst + to * item, row.to);
    });
  });
}

void copy_raw(const View& src, const View& dst) {
  Space space(dst);
  PairedDimensions p{space.of(src), space.of(dst)};
  p.coalesce();
  if (p.rank() == 0) p.add({1, 1, 1});
  int64_t item = size_of(dst.dtype);
  int kind = kind_of(dst.dtype);
  int dim = turned_dim(p);
  auto* from = static_cast<const char*>(src.data);
  auto* to = static_cast<char*>(dst.data);
  if (dim >= 0)
    copy_turned(p, dim, from, to, item, kind);
  else
    copy_rows(p, from, to, item, kind);
}

Compute between(DType a, DType b) {
  if (a == DType::f64 || b == DType::f64) return Compute::f64;
  return is_floating(a) || is_floating(b) ? Compute::f32 : Compute::i64;
}

// `value` has the compute type.
void fill_with(const View& dst, const void* value, Compute type) {
  int64_t n = dst.numel();
  if (n == 0) return;
  const ConvertLoops& loops = CLEAVE_PICK(convert_loops);
  alignas(8) char element[8];
  loops.store[static_cast<int>(dst.dtype)][static_cast<int>(type)](value, 1, element, 1);
  if (n <= kGrain && dst.contiguous()) return loops.copy[kind_of(dst.dtype)](element, 0, n, dst.data, 1);
  copy_raw(View{element, dst.dtype, dst.shape, Strides(dst.rank(), 0)}, dst);
}

}  // namespace

void copy(const View& src, const View& dst) {
  int64_t total = dst.numel();
  if (total == 0) return;
  if (src.dtype == dst.dtype) {
    if (total > kGrain || !src.contiguous() || !dst.contiguous()) return copy_raw(src, dst);
    std::memcpy(dst.data, src.data, static_cast<size_t>(total * size_of(dst.dtype)));
    return;
  }
  Compute type = between(src.dtype, dst.dtype);
  size_t width = static_cast<size_t>(width_of(type));
  Blocks blocks(dst, type);
  Turned straight(src, dst);
  blocks.in(straight.view());
  blocks.out(dst);
  blocks.run([width](int64_t, int64_t n, const void* const* from, void* const* to) {
    std::memcpy(to[0], from[0], static_cast<size_t>(n) * width);
  });
}

int64_t Turned::copy_bytes(const View& x, const View& out) {
  constexpr int64_t kLarge = 1 << 15, kLine = 16;
  if (x.numel() < kLarge || !(x.shape == out.shape) || x.contiguous()) return 0;
  Dimensions d = Space(out).of(x);
  if (d.stride[d.rank - 1] < kLine || d.size[d.rank - 1] < kLine) return 0;
  bool dense_elsewhere = false;
  for (int k = 0; k + 1 < d.rank; ++k) dense_elsewhere |= d.stride[k] == 1 && d.size[k] >= kLine;
  return dense_elsewhere ? x.numel() * size_of(x.dtype) : 0;
}

Turned::Turned(const View& x, const View& out) : x_(x) {
  int64_t bytes = copy_bytes(x, out);
  if (bytes == 0) return;
  Space space(out);
  View& y = copy_.emplace(bytes, x).view;
  y.data = copy_->memory.data();
  int64_t step = 1;
  for (int k = space.walked - 1; k >= 0; --k) {
    y.strides[space.dim[k]] = step;
    step *= space.size[k];
  }
  copy_raw(x, y);
}

int64_t copy_scratch(const View& src, const View& dst) {
  return src.dtype == dst.dtype || dst.numel() == 0 ? 0 : Turned::copy_bytes(src, dst);
}

void fill(const View& dst, double value) { fill_with(dst, &value, Compute::f64); }
void fill(const View& dst, int64_t value) { fill_with(dst, &value, Compute::i64); }

}  // namespace cleave::cpu
