// What the attention kernels share: which keys a query sees, and how rows of heads are read and written.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <cleave/core/cpu/attention.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/attention.h>
#include <cleave/core/cpu/loops/small_product.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/workspace.h>
#include <cleave/core/parallel.h>

namespace cleave::cpu {

inline constexpr int64_t kQueries = 64, kKeys = 128;  // of a block

inline const AttentionLoops<float>& attention_loops(float) { return CLEAVE_PICK(attention_loops_f32); }
inline const AttentionLoops<double>& attention_loops(double) { return CLEAVE_PICK(attention_loops_f64); }

inline const SmallProductLoops<float>& small_products(float) { return CLEAVE_PICK(small_product_loops_f32); }
inline const SmallProductLoops<double>& small_products(double) { return CLEAVE_PICK(small_product_loops_f64); }

/// The room that a row of n elements takes in a block.
inline int64_t padded(int64_t n) { return std::max(kSmallWidth, (n + kSmallWidth - 1) / kSmallWidth * kSmallWidth); }

struct Geometry {
  Geometry(const View& q, const View& k, const View& v, const AttentionBlock& b)
      : block(b),
        batch(q.shape[0]),
        heads(q.shape[1]),
        kv_heads(k.shape[1]),
        tq(q.shape[2]),
        tk(k.shape[2]),
        d(q.shape[3]),
        dv(v.shape[3]) {
    if (block.queries == 0) block.queries = tq;
    if (block.heads == 0) block.heads = heads;
  }

  int64_t kv_head(int64_t h) const { return (block.first_q_head + h) / block.group - block.first_kv_head; }

  /// Keys that local query i sees, before clamping to what is there.
  int64_t seen(int64_t i) const { return block.causal ? block.first_query + i + tk - block.queries + 1 : tk; }
  int64_t seen_clamped(int64_t i) const { return std::clamp<int64_t>(seen(i), 0, tk); }

  DropBlock drop(int64_t b, int64_t h, int64_t i0, int64_t j0) const {
    auto u = [](int64_t x) { return static_cast<uint64_t>(x); };
    uint64_t row = (u(block.first_batch + b) * u(block.heads) + u(block.first_q_head + h)) * u(block.queries) +
                   u(block.first_query + i0);
    DropBlock out{block.seed, block.call, row * u(tk) + u(j0), u(tk), 0, 1};
    out.threshold = static_cast<uint64_t>(std::ceil(std::min(block.dropout, 1.0) * 4294967296.0));
    out.scale = 1.0 / (1.0 - block.dropout);
    return out;
  }

  /// Blocks of queries that are worth a thread.
  int64_t grain() const { return std::max<int64_t>(1, 500'000 / (kQueries * std::max<int64_t>(1, tk * (d + dv)))); }

  AttentionBlock block;
  int64_t batch, heads, kv_heads, tq, tk, d, dv;
};

inline MaskBlock mask_block(const View& mask, int64_t b, int64_t h, int64_t i0, int64_t j0) {
  auto step = [&](int dim) { return mask.shape[dim] == 1 ? 0 : mask.strides[dim]; };
  int64_t offset = b * step(0) + h * step(1) + i0 * step(2) + j0 * step(3);
  return {static_cast<const char*>(mask.data) + offset * size_of(mask.dtype), static_cast<int>(mask.dtype), step(2),
          step(3)};
}

template <class T>
struct Rows {
  const T* data = nullptr;
  int64_t ld = 1;
};
template <class T>
struct MutableRows {
  T* data = nullptr;
  int64_t ld = 1;
};

inline char* head_of(const View& x, int64_t b, int64_t h, int64_t row) {
  int64_t offset = b * x.strides[0] + h * x.strides[1] + row * x.strides[2];
  return static_cast<char*>(x.data) + offset * size_of(x.dtype);
}

/// Whether the rows of a head can be handed to a product as they are.
template <class T>
bool is_direct(const View& x) {
  int64_t width = x.shape[3];
  return x.dtype == dtype_of<T>() && x.strides[3] == 1 && width % kSmallWidth == 0 && x.strides[2] >= width;
}

/// Reads rows of [B, H, T, D], through a buffer of `most` padded rows if need be.
template <class T>
class Source {
 public:
  Source(const View& x, int64_t most)
      : x_(x), direct_(is_direct<T>(x)), ld_(padded(x.shape[3])), buffer_(direct_ ? 1 : most * ld_) {
    if (!direct_) std::fill_n(buffer_.data(), most * ld_, T(0));
  }

  Rows<T> rows(int64_t b, int64_t h, int64_t first, int64_t count) {
    char* from = head_of(x_, b, h, first);
    if (direct_) return {reinterpret_cast<const T*>(from), x_.strides[2]};
    Grid grid{from, static_cast<int>(x_.dtype), x_.strides[2], x_.strides[3]};
    panel_loops(T{}).load(grid, count, x_.shape[3], buffer_.data(), ld_);
    return {buffer_.data(), ld_};
  }

 private:
  const View& x_;
  bool direct_;
  int64_t ld_;
  Workspace<T, 6> buffer_;
};

/// All keys (or values) of the head asked for last, as rows and, if wanted, turned: a block [D, kKeys] for every kKeys
/// of them.
template <class T>
class Keys {
 public:
  Keys(const View& x, bool turned)
      : rows_(x, x.shape[2]),
        count_(x.shape[2]),
        width_(x.shape[3]),
        memory_(turned ? (count_ + kKeys - 1) / kKeys * kKeys * width_ : 0),
        turned_(turned) {
    if (turned) std::fill_n(memory_.data(), (count_ + kKeys - 1) / kKeys * kKeys * width_, T(0));
  }

  void use(int64_t b, int64_t h) {
    if (b == b_ && h == h_) return;
    b_ = b;
    h_ = h;
    all_ = rows_.rows(b, h, 0, count_);
    for (int64_t j = 0; turned_ && j < count_; j += kKeys)
      small_products(T{}).turn(all_.data + j * all_.ld, all_.ld, std::min(kKeys, count_ - j), width_,
                               memory_.data() + j * width_, kKeys);
  }
  Rows<T> rows(int64_t first) const { return {all_.data + first * all_.ld, all_.ld}; }
  const T* turned(int64_t first) const { return memory_.data() + first * width_; }

 private:
  Source<T> rows_;
  int64_t count_, width_, b_ = -1, h_ = -1;
  Rows<T> all_;
  Workspace<T, 9> memory_;
  bool turned_;
};

template <class T>
void store_rows(const T* from, int64_t ld, const View& to, int64_t b, int64_t h, int64_t first, int64_t count) {
  Grid grid{head_of(to, b, h, first), static_cast<int>(to.dtype), to.strides[2], to.strides[3]};
  panel_loops(T{}).store(from, ld, count, to.shape[3], grid);
}

/// A head's rows to sum in: in place, or in a buffer that `end` stores.
template <class T>
class Sum {
 public:
  Sum(const View& x, int64_t rows)
      : x_(x), direct_(is_direct<T>(x)), rows_(rows), buffer_(direct_ ? 1 : rows * padded(x.shape[3])) {}

  MutableRows<T> begin(int64_t b, int64_t h) {
    b_ = b;
    h_ = h;
    if (direct_)
      to_ = {reinterpret_cast<T*>(head_of(x_, b, h, 0)), x_.strides[2]};
    else
      to_ = {buffer_.data(), padded(x_.shape[3])};
    return to_;
  }
  void end() {
    if (!direct_) store_rows(to_.data, to_.ld, x_, b_, h_, 0, rows_);
  }

 private:
  const View& x_;
  bool direct_;
  int64_t rows_, b_ = 0, h_ = 0;
  MutableRows<T> to_;
  Workspace<T, 7> buffer_;
};

}  // namespace cleave::cpu
