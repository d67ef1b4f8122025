#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/reduce.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/core/cpu/scratch.h>

#include <cstring>
#include <limits>

namespace cleave::cpu {
namespace {

constexpr int64_t kGrain = kBlock * kGrainBlocks;
constexpr int64_t kRowChunk = kGrain;  // elements of a row that make one partial total
constexpr int64_t kColumnChunk = 256;  // rows that do where columns are reduced

int64_t pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Sums of f32 that are wanted in f64 are taken in f64.
Compute type_of(Reduce kind, const View& x, const View& out) {
  bool adds = kind == Reduce::sum || kind == Reduce::sum_abs || kind == Reduce::sum_square;
  return adds && out.dtype == DType::f64 && is_floating(x.dtype) ? Compute::f64 : compute_type(x.dtype);
}

// A reduction as loops: over what is kept (strides in x, and in out), and over what is reduced for each.
struct Problem {
  const View& x;
  const View& out;
  Compute type;
  ReduceLoop loop;
  PairedDimensions kept;
  Dimensions reduced;

  Problem(Reduce kind, const View& x_, const View& out_)
      : x(x_),
        out(out_),
        type(type_of(kind, x_, out_)),
        loop(CLEAVE_PICK(reduce_loops).of[static_cast<int>(kind)][static_cast<int>(type)]) {
    Space space(x);
    for (int k = 0; k < space.walked; ++k) {
      int d = space.dim[k];
      if (out.shape[d] == 1)
        reduced.add(space.size[k], x.strides[d]);
      else
        kept.add({space.size[k], x.strides[d], out.strides[d]});
    }
    reduced.coalesce();
    kept.coalesce();
  }
  const char* at(int64_t offset) const { return static_cast<const char*>(x.data) + offset * size_of(x.dtype); }
  Walker rows() const { return Walker(x.data, x.dtype, reduced, type); }
};

// totals[chunk][k] for kept element k.
char* total_at(char* totals, int64_t chunk, int64_t count, int64_t k) { return totals + (chunk * count + k) * 8; }

void reduce_row(const Problem& p, Walker& walker, int64_t n, void* buffer, char* total) {
  p.loop.row(nullptr, 0, total);
  for (int64_t i = 0, now; i < n; i += now) {
    now = walker.clip(n - i);
    alignas(8) char part[8];
    p.loop.row(walker.read(now, buffer), now, part);
    p.loop.merge(part, 1, total);
  }
}

void reduce_rows(const Problem& p, int64_t chunks, char* totals) {
  int64_t count = p.kept.from.count(), n = p.reduced.count();
  int64_t grain = std::max<int64_t>(1, kGrain / std::min(n, kRowChunk));
  parallel_for(count * chunks, grain, [&](int64_t begin, int64_t end) {
    alignas(64) std::byte buffer[kBlock * 8];
    Walker walker = p.rows();
    for (int64_t t = begin; t < end; ++t) {
      int64_t k = t / chunks, first = t % chunks * kRowChunk;
      walker.rebase(const_cast<char*>(p.at(p.kept.from.offset(k))));
      walker.seek(first);
      reduce_row(p, walker, std::min(kRowChunk, n - first), buffer, total_at(totals, t % chunks, count, k));
    }
  });
}

// One piece of a kept inner dim, of at most kBlock elements, over some of the reduced elements in order.
void reduce_column(const Problem& p, const char* from, int64_t step, int64_t width, int64_t first, int64_t last,
                   void* totals) {
  alignas(64) std::byte acc[kBlock * 8], buffer[kBlock * 8];
  bool dense = p.x.dtype == stored_as(p.type) && step == 1;
  auto load = CLEAVE_PICK(convert_loops).load[static_cast<int>(p.x.dtype)][static_cast<int>(p.type)];
  int inner = p.reduced.rank - 1;
  int64_t item = size_of(p.x.dtype), run = inner < 0 ? 1 : p.reduced.size[inner];
  int64_t down = inner < 0 ? 0 : p.reduced.stride[inner] * item;
  p.loop.start(acc, width);
  for (int64_t r = first; r < last;) {
    const char* row = from + p.reduced.offset(r) * item;
    for (int64_t stop = std::min(last, r + run - r % run); r < stop; ++r, row += down) {
      if (!dense) load(row, step, width, buffer);
      p.loop.column(dense ? static_cast<const void*>(row) : buffer, width, acc);
    }
  }
  p.loop.finish(acc, width, totals);
}

void reduce_columns(const Problem& p, int64_t chunks, char* totals) {
  PairedDimensions outer = p.kept;
  auto inner = outer.take(outer.rank() - 1);
  int64_t count = p.kept.from.count(), n = p.reduced.count(), blocks = pieces(inner.size, kBlock);
  int64_t cost = std::min(inner.size, kBlock) * std::min(n, kColumnChunk);
  int64_t tasks = outer.from.count() * blocks * chunks;
  parallel_for(tasks, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t chunk = t % chunks, block = t / chunks % blocks, o = t / chunks / blocks;
      int64_t column = block * kBlock, first = chunk * kColumnChunk;
      const char* from = p.at(outer.from.offset(o) + column * inner.from);
      reduce_column(p, from, inner.from, std::min(kBlock, inner.size - column), first,
                    std::min(n, first + kColumnChunk), total_at(totals, chunk, count, o * inner.size + column));
    }
  });
}

// Whether to go along the kept innermost dim: it is denser than the reduced one, or that is too short for a row.
bool by_columns(const Problem& p) {
  constexpr int64_t kShortRow = 16, kShortColumn = 8;
  int k = p.kept.rank() - 1, r = p.reduced.rank - 1;
  if (k < 0 || p.kept.from.size[k] < kShortColumn) return false;
  return r < 0 || p.kept.from.stride[k] < p.reduced.stride[r] || p.reduced.size[r] < kShortRow;
}

void store(const Problem& p, char* totals, int64_t count) {
  Compute type = p.type == Compute::i64 ? Compute::i64 : Compute::f64;
  Walker out(p.out.data, p.out.dtype, p.kept.to, type);
  out.seek(0);
  for (int64_t i = 0, n; i < count; i += n) {
    n = out.clip(count - i);
    char* from = total_at(totals, 0, count, i);
    void* to = out.target(n, from);
    if (to != from) std::memcpy(to, from, static_cast<size_t>(n) * 8);
    out.written(n, from);
  }
}

void fill_identity(Reduce kind, DType t, const View& out) {
  bool largest = kind == Reduce::max;
  if (kind != Reduce::max && kind != Reduce::min) {
    fill(out, static_cast<int64_t>(kind == Reduce::prod || kind == Reduce::all));
  } else if (is_floating(t)) {
    fill(out, largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  } else {
    visit_dtype(t, [&](auto e) {
      using T = std::conditional_t<std::is_integral_v<decltype(e)>, decltype(e), int64_t>;
      using L = std::numeric_limits<T>;
      fill(out, static_cast<int64_t>(largest ? L::lowest() : L::max()));
    });
  }
}

int64_t chunks_of(const Problem& p, bool columns) {
  return pieces(p.reduced.count(), columns ? kColumnChunk : kRowChunk);
}

}  // namespace

int64_t reduce_scratch(Reduce kind, const View& x, const View& out) {
  if (out.numel() == 0 || x.numel() == 0) return 0;
  Problem p(kind, x, out);
  return out.numel() * chunks_of(p, by_columns(p)) * 8;
}

void reduce(Reduce kind, const View& x, const View& out) {
  int64_t count = out.numel();
  if (count == 0) return;
  if (x.numel() == 0) return fill_identity(kind, x.dtype, out);
  Problem p(kind, x, out);
  bool columns = by_columns(p);
  int64_t chunks = chunks_of(p, columns);
  Scratch memory(count * chunks * 8);
  char* totals = memory.as<char>();
  if (columns)
    reduce_columns(p, chunks, totals);
  else
    reduce_rows(p, chunks, totals);
  for (int64_t c = 1; c < chunks; ++c) p.loop.merge(total_at(totals, c, count, 0), count, totals);
  store(p, totals, count);
}

}  // namespace cleave::cpu
