// Walks views of any dtypes and strides in step, in dense blocks of one compute type. A block is the memory itself
// where that is dense and of the type; else elements are converted through a buffer that fits the first-level cache.
#pragma once
#include <algorithm>
#include <cstddef>
#include <new>

#include <cleave/core/cpu/loops/convert.h>
#include <cleave/core/parallel.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

inline constexpr int64_t kBlock = 1024;      ///< elements of a buffer
inline constexpr int64_t kGrainBlocks = 32;  ///< blocks that are worth a thread
inline constexpr int64_t kLongRow = 64;      ///< rows that are worth a block of their own

constexpr Compute compute_type(DType t) {
  return t == DType::f64 ? Compute::f64 : is_floating(t) ? Compute::f32 : Compute::i64;
}
/// The dtype whose elements need no conversion.
constexpr DType stored_as(Compute c) {
  return c == Compute::f64 ? DType::f64 : c == Compute::f32 ? DType::f32 : DType::i64;
}
constexpr int64_t width_of(Compute c) { return c == Compute::f32 ? 4 : 8; }

/// Sizes and one list of strides, outer dims first.
struct Dimensions {
  int rank = 0;
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims];

  void add(int64_t n, int64_t step) {
    size[rank] = n;
    stride[rank++] = step;
  }
  int64_t count() const;
  /// Fuses neighbours that are one run, and drops dims of size 1.
  void coalesce();
  /// Where element `index` of the row-major order lies.
  int64_t offset(int64_t index) const;
};

/// One list of sizes with two of strides.
struct PairedDimensions {
  struct Dim {
    int64_t size, from, to;
  };
  Dimensions from, to;

  void add(const Dim& d) {
    from.add(d.size, d.from);
    to.add(d.size, d.to);
  }
  Dim at(int d) const { return {to.size[d], from.stride[d], to.stride[d]}; }
  int rank() const { return to.rank; }
  /// Fuses neighbours that are one run on both sides, and drops dims of size 1.
  void coalesce();
  /// Removes dim d.
  Dim take(int d);
  /// Calls f(from offset, to offset) for the elements [begin, end) of the row-major order.
  template <class F>
  void for_each(int64_t begin, int64_t end, F f) const {
    int64_t at[kMaxDims] = {}, source = from.offset(begin), target = to.offset(begin);
    for (int64_t rest = begin, d = rank() - 1; d >= 0; --d) {
      at[d] = rest % to.size[d];
      rest /= to.size[d];
    }
    for (int64_t i = begin; i < end; ++i) {
      f(source, target);
      for (int d = rank() - 1; d >= 0; --d) {
        source += from.stride[d];
        target += to.stride[d];
        if (++at[d] < to.size[d]) break;
        at[d] = 0;
        source -= from.stride[d] * to.size[d];
        target -= to.stride[d] * to.size[d];
      }
    }
  }
};

/// A shape whose dims of size above 1 are walked in the order in which `lead` has them in memory.
struct Space {
  explicit Space(const View& lead);
  /// The strides of a view that broadcasts to the shape, in this order.
  Dimensions of(const View& view) const;

  int64_t total = 1;
  int rank = 0;    ///< of the shape
  int walked = 0;  ///< dims in `dim`
  int dim[kMaxDims];
  int64_t size[kMaxDims];
};

/// A position in one operand.
class Walker {
 public:
  Walker() {}  // uninitialised: arrays of walkers are made for every call
  Walker(void* data, DType dtype, const Dimensions& dims, Compute type);

  void seek(int64_t index);
  /// The same walk over elements that start elsewhere; `seek` next.
  void rebase(void* data) {
    data_ = static_cast<char*>(data);
    filled_ = 0;
  }
  /// The best number of elements for the next block, at most n.
  int64_t clip(int64_t n) const;
  /// The next n elements, in place or in `buffer`, which must be this walker's own and keep its content. Advances.
  const void* read(int64_t n, void* buffer);
  /// Where to put the next n elements; `written` then stores and advances.
  void* target(int64_t n, void* buffer) const { return in_place(n) ? at_ : buffer; }
  void written(int64_t n, const void* buffer);

 private:
  bool in_place(int64_t n) const { return dense_ && n <= left_; }
  void advance(int64_t n);

  char* data_;
  char* at_;
  int64_t left_;  // in the innermost row
  ConvertLoops::Load load_;
  ConvertLoops::Store store_;
  int64_t item_;     // bytes as stored
  int64_t width_;    // bytes of the compute type
  int64_t filled_;   // elements of a buffer that hold the repeated one
  bool dense_;       // rows can be used in place
  bool repeats_;     // one element, everywhere
  Dimensions dims_;  // strides in elements
  int64_t index_[kMaxDims];
};

/// A loop over blocks: inputs and outputs are added in order, then `run` calls body(first, n, in, out) for blocks that
/// cover the space, `first` counting elements in walking order. Blocks run concurrently. With nothing but in-place
/// operands a block is as long as it can be.
class Blocks {
 public:
  static constexpr int kIn = 5, kOut = 4;

  /// Walks the shape of `lead` in the order of its memory.
  Blocks(const View& lead, Compute type) : space_(lead), type_(type) {}
  void in(const View& view) { new (&in_[ins_++]) Walker(view.data, view.dtype, space_.of(view), type_); }
  void out(const View& view) { new (&out_[outs_++]) Walker(view.data, view.dtype, space_.of(view), type_); }

  template <class Body>
  void run(const Body& body) const {
    int64_t units = (space_.total + kBlock - 1) / kBlock;
    parallel_for(units, kGrainBlocks, [&](int64_t first, int64_t last) {
      part(first * kBlock, std::min(last * kBlock, space_.total), body);
    });
  }

 private:
  template <class Body>
  void part(int64_t begin, int64_t end, const Body& body) const {
    alignas(64) std::byte buffers[kIn + kOut][kBlock * 8];
    Walker in[kIn], out[kOut];
    for (int k = 0; k < ins_; ++k) (in[k] = in_[k]).seek(begin);
    for (int k = 0; k < outs_; ++k) (out[k] = out_[k]).seek(begin);
    for (int64_t i = begin, n; i < end; i += n) {
      n = end - i;
      for (int k = 0; k < ins_; ++k) n = in[k].clip(n);
      for (int k = 0; k < outs_; ++k) n = out[k].clip(n);
      const void* from[kIn];
      void* to[kOut];
      for (int k = 0; k < ins_; ++k) from[k] = in[k].read(n, buffers[k]);
      for (int k = 0; k < outs_; ++k) to[k] = out[k].target(n, buffers[kIn + k]);
      body(i, n, from, to);
      for (int k = 0; k < outs_; ++k) out[k].written(n, buffers[kIn + k]);
    }
  }

  Space space_;
  Compute type_;
  int ins_ = 0, outs_ = 0;
  Walker in_[kIn], out_[kOut];
};

}  // namespace cleave::cpu
