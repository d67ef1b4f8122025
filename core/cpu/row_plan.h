// How the rows along one dim of several views are walked: in panels of neighbouring rows, each with one base offset and
// one row stride per view.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/panel.h>
#include <cleave/core/cpu/workspace.h>
#include <cleave/core/parallel.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

inline const PanelLoops<float>& panel_loops(float) { return CLEAVE_PICK(panel_loops_f32); }
inline const PanelLoops<double>& panel_loops(double) { return CLEAVE_PICK(panel_loops_f64); }

/// Up to six views over the same rows. `strides` of a view are those of the dims other than the row's.
class RowPlan {
 public:
  static constexpr int kMost = 6;

  /// `outer` are the sizes of the dims other than the row's. Neighbouring dims that are one for all views are merged.
  RowPlan(const Shape& outer, std::span<const Strides> strides);

  int64_t rows() const { return rows_; }

  /// Calls f(first row, count, base offsets, row strides) for runs of rows in [begin, end) of at most `most` rows.
  template <class F>
  void walk(int64_t begin, int64_t end, int64_t most, F f) const {
    while (begin < end) {
      int64_t at = begin % inner_, count = std::min({end - begin, inner_ - at, most});
      std::array<int64_t, kMost> base = offsets(begin / inner_);
      for (int v = 0; v < views_; ++v) base[v] += at * inner_strides_[v];
      f(begin, count, base, inner_strides_);
      begin += count;
    }
  }

 private:
  std::array<int64_t, kMost> offsets(int64_t index) const;

  int views_ = 0;
  int64_t rows_ = 1, inner_ = 1;
  std::array<int64_t, kMost> inner_strides_{};
  Shape sizes_;  // of the dims outside the innermost
  std::array<Strides, kMost> steps_;
};

/// Strides of x without dim.
Strides without(const Strides& strides, int dim);
/// Shape of x without dim.
Shape without(const Shape& shape, int dim);

/// How many rows of n elements make a panel: enough to amortise a strided walk, few enough to stay in cache.
inline int64_t panel_rows(int64_t n) { return std::clamp<int64_t>(32'768 / std::max<int64_t>(1, n), 16, 256); }
/// The least rows for a thread.
inline int64_t row_grain(int64_t n) { return std::max<int64_t>(1, 16'384 / std::max<int64_t>(1, n)); }

/// From row to row in a buffer: rows must not all fall into the same few lines of the cache.
inline int64_t buffer_ld(int64_t n) { return (n / 16 + 2) * 16; }

/// Reads rows of one view as dense rows of T: in place where they are, else through a buffer.
template <class T, int Slot>
class RowReader {
 public:
  RowReader(const View& x, int64_t col_stride, int64_t n, int64_t most)
      : data_(static_cast<char*>(x.data)),
        dtype_(x.dtype),
        col_(col_stride),
        n_(n),
        direct_(x.dtype == dtype_of<T>() && (col_stride == 1 || n <= 1)),
        ld_(buffer_ld(n)),
        buffer_(direct_ ? 1 : ld_ * most) {}

  void load(int64_t base, int64_t row_stride, int64_t count) {
    char* from = data_ + base * size_of(dtype_);
    if (direct_) {
      rows_ = reinterpret_cast<const T*>(from);
      ld_ = row_stride;
      return;
    }
    panel_loops(T{}).load({from, static_cast<int>(dtype_), row_stride, col_}, count, n_, buffer_.data(), ld_);
    rows_ = buffer_.data();
  }
  const T* row(int64_t r) const { return rows_ + r * ld_; }

 private:
  char* data_;
  DType dtype_;
  int64_t col_, n_;
  bool direct_;
  int64_t ld_;
  Workspace<T, Slot> buffer_;
  const T* rows_ = nullptr;
};

/// Likewise for an output: `begin` gives the rows to write, `end` stores them.
template <class T, int Slot>
class RowWriter {
 public:
  RowWriter(const View& x, int64_t col_stride, int64_t n, int64_t most)
      : data_(static_cast<char*>(x.data)),
        dtype_(x.dtype),
        col_(col_stride),
        n_(n),
        direct_(x.dtype == dtype_of<T>() && (col_stride == 1 || n <= 1)),
        ld_(buffer_ld(n)),
        buffer_(direct_ ? 1 : ld_ * most) {}

  void begin(int64_t base, int64_t row_stride) {
    to_ = data_ + base * size_of(dtype_);
    row_stride_ = row_stride;
    rows_ = direct_ ? reinterpret_cast<T*>(to_) : buffer_.data();
    if (direct_) ld_ = row_stride;
  }
  T* row(int64_t r) { return rows_ + r * ld_; }
  void end(int64_t count) {
    if (!direct_) panel_loops(T{}).store(rows_, ld_, count, n_, {to_, static_cast<int>(dtype_), row_stride_, col_});
  }

 private:
  char *data_, *to_ = nullptr;
  DType dtype_;
  int64_t col_, n_, row_stride_ = 0;
  bool direct_;
  int64_t ld_;
  Workspace<T, Slot> buffer_;
  T* rows_ = nullptr;
};

}  // namespace cleave::cpu
