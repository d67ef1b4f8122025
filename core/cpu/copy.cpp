// Copies, conversions and fills.
#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/pointwise.h>

#include <bit>
#include <cstring>

namespace cleave::cpu {
namespace {

constexpr int64_t kGrain = kBlock * kGrainBlocks;

// Both sides of a copy over the same sizes, in the order of dst's memory.
struct Pair {
  Dimensions from, to;

  // Fuses neighbours that are one run on both sides.
  void coalesce() {
    int kept = 0;
    for (int d = 0; d < to.rank; ++d) {
      bool fuse = kept > 0 && from.stride[kept - 1] == from.stride[d] * from.size[d] &&
                  to.stride[kept - 1] == to.stride[d] * to.size[d];
      int at = fuse ? kept - 1 : kept++;
      int64_t n = fuse ? to.size[at] * to.size[d] : to.size[d];
      from.size[at] = to.size[at] = n;
      from.stride[at] = from.stride[d];
      to.stride[at] = to.stride[d];
    }
    from.rank = to.rank = kept;
    if (kept == 0) {
      from.add(1, 1);
      to.add(1, 1);
    }
  }
  // Takes dim d out and says what it was.
  struct Dim {
    int64_t size, from, to;
  };
  Dim take(int d) {
    Dim out{to.size[d], from.stride[d], to.stride[d]};
    for (Dimensions* side : {&from, &to}) {
      for (int k = d; k + 1 < side->rank; ++k) {
        side->size[k] = side->size[k + 1];
        side->stride[k] = side->stride[k + 1];
      }
      --side->rank;
    }
    return out;
  }
};

// The dim that is dense in src while the innermost is dense in dst, else -1.
int turned_dim(const Pair& p) {
  constexpr int64_t kShort = 8;
  int inner = p.to.rank - 1;
  if (p.to.stride[inner] != 1 || p.from.stride[inner] <= 1 || p.to.size[inner] < kShort) return -1;
  for (int d = 0; d < inner; ++d)
    if (p.from.stride[d] == 1 && p.to.size[d] >= kShort) return d;
  return -1;
}

void copy_turned(Pair p, int dim, const char* src, char* dst, int64_t item, int kind) {
  constexpr int64_t kStrip = 64;  // rows of dst per task
  auto columns = p.take(p.to.rank - 1);
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

void copy_rows(Pair p, const char* src, char* dst, int64_t item, int kind) {
  auto row = p.take(p.to.rank - 1);
  int64_t pieces = (row.size + kGrain - 1) / kGrain, outer = p.to.count();
  auto run = CLEAVE_PICK(convert_loops).copy[kind];
  int64_t grain = std::max<int64_t>(1, kGrain / row.size);
  parallel_for(outer * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t first = t % pieces * kGrain, now = std::min(kGrain, row.size - first);
      const char* from = src + (p.from.offset(t / pieces) + first * row.from) * item;
      run(from, row.from, now, dst + (p.to.offset(t / pieces) + first * row.to) * item, row.to);
    }
  });
}

void copy_raw(const View& src, const View& dst) {
  Space space(dst);
  Pair p{space.of(src), space.of(dst)};
  p.coalesce();
  int64_t item = size_of(dst.dtype);
  int kind = std::countr_zero(static_cast<uint64_t>(item));
  int dim = turned_dim(p);
  auto* from = static_cast<const char*>(src.data);
  auto* to = static_cast<char*>(dst.data);
  if (dim >= 0) copy_turned(p, dim, from, to, item, kind);
  else copy_rows(p, from, to, item, kind);
}

Compute between(DType a, DType b) {
  if (a == DType::f64 || b == DType::f64) return Compute::f64;
  return is_floating(a) || is_floating(b) ? Compute::f32 : Compute::i64;
}

template <class T>
void fill_with(const View& dst, T value) {
  if (dst.numel() == 0) return;
  alignas(8) char element[8];
  DType t = cleave::dtype_of<T>();
  View from{&value, t, {}, {}}, one{element, dst.dtype, {}, {}};
  copy(from, one);
  View all{element, dst.dtype, dst.shape, Strides(dst.rank(), 0)};
  copy_raw(all, dst);
}

}  // namespace

void copy(const View& src, const View& dst) {
  int64_t n = dst.numel();
  if (n == 0) return;
  if (src.dtype == dst.dtype) {
    if (n > kGrain || !src.contiguous() || !dst.contiguous()) return copy_raw(src, dst);
    std::memcpy(dst.data, src.data, static_cast<size_t>(n * size_of(dst.dtype)));
    return;
  }
  Compute type = between(src.dtype, dst.dtype);
  size_t width = static_cast<size_t>(size_of(type));
  Blocks blocks(dst, type);
  blocks.in(src);
  blocks.out(dst);
  blocks.run([width](int64_t, int64_t n, const void* const* from, void* const* to) {
    std::memcpy(to[0], from[0], static_cast<size_t>(n) * width);
  });
}

void fill(const View& dst, double value) { fill_with(dst, value); }
void fill(const View& dst, int64_t value) { fill_with(dst, value); }

}  // namespace cleave::cpu
