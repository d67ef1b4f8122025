#include <cleave/core/cpu/loops/attention.h>
#include <cleave/core/cpu/loops/simd.h>
#include <cleave/core/math/exp_flush.h>
#include <cleave/core/math/half.h>
#include <cleave/core/math/random.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

template <class T>
inline constexpr T kInfinity = static_cast<T>(__builtin_inf());

template <class T>
int64_t seen_keys(const ScoreBlock<T>& b, int64_t r) {
  int64_t n = b.seen + r * b.seen_step;
  return n < 0 ? 0 : n > b.cols ? b.cols : n;
}

template <class T>
void mask_row(const MaskBlock& mask, int64_t r, int64_t n, T* s) {
  int64_t at = r * mask.row, step = mask.col;
  switch (mask.dtype) {
    case 0:
      for (int64_t c = 0; c < n; ++c) s[c] += static_cast<T>(static_cast<const double*>(mask.data)[at + c * step]);
      return;
    case 1:
      for (int64_t c = 0; c < n; ++c) s[c] += static_cast<T>(static_cast<const float*>(mask.data)[at + c * step]);
      return;
    case 2:
      for (int64_t c = 0; c < n; ++c)
        s[c] += static_cast<T>(math::from_bf16(static_cast<const uint16_t*>(mask.data)[at + c * step]));
      return;
    case 3:
      for (int64_t c = 0; c < n; ++c)
        s[c] += static_cast<T>(math::from_f16(static_cast<const uint16_t*>(mask.data)[at + c * step]));
      return;
    default:
      for (int64_t c = 0; c < n; ++c)
        s[c] = static_cast<const uint8_t*>(mask.data)[at + c * step] ? s[c] : -kInfinity<T>;
  }
}

// Hides what lies beyond n up to a whole vector, so that rows need no remainder loops; returns the new length. The
// scores' rows have room for it.
template <class T>
[[gnu::always_inline]] inline int64_t hide_rest(T* s, int64_t n) {
  int64_t whole = (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  for (int64_t c = n; c < whole; ++c) s[c] = -kInfinity<T>;
  return whole;
}

// The words of `counters` counters from `first` on; see core/random.h.
void random_words(uint64_t seed, uint64_t call, uint64_t first, int64_t counters, uint32_t* __restrict words) {
  for (int64_t i = 0; i < counters; ++i) {
    uint64_t counter = first + static_cast<uint64_t>(i);
    auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2, c3;
    math::philox(seed, call, c0, c1, c2, c3);
    words[4 * i] = c0;
    words[4 * i + 1] = c1;
    words[4 * i + 2] = c2;
    words[4 * i + 3] = c3;
  }
}

// x[c] *= scale or 0, for both rows (`y` may be null).
template <class T>
void drop_row(const DropBlock& drop, int64_t r, int64_t n, T* __restrict x, T* __restrict y) {
  constexpr int64_t kWords = 512;
  uint64_t index = drop.first + static_cast<uint64_t>(r) * drop.row;
  T scale = static_cast<T>(drop.scale);
  bool all = drop.threshold > 0xffffffffu;
  auto threshold = static_cast<uint32_t>(drop.threshold);
  uint32_t words[kWords];
  for (int64_t begin = 0; begin < n;) {
    auto skip = static_cast<int64_t>(index % 4);
    int64_t count = n - begin < kWords - skip ? n - begin : kWords - skip;
    random_words(drop.seed, drop.call, index / 4, (skip + count + 3) / 4, words);
    const uint32_t* word = words + skip;
    for (int64_t c = 0; c < count; ++c) {
      T factor = word[c] < threshold || all ? T(0) : scale;
      x[begin + c] = factor == 0 ? T(0) : x[begin + c] * factor;
      if (y) y[begin + c] = factor == 0 ? T(0) : y[begin + c] * factor;
    }
    begin += count;
    index += static_cast<uint64_t>(count);
  }
}

// In passes over the rows, so that one row's reduction overlaps with the next one's.
template <class T>
void forward(const ScoreBlock<T>& b, T* top, T* sum, T* acc, int64_t width) {
  for (int64_t r = 0; r < b.rows; ++r) {
    T* s = b.scores + r * b.ld;
    int64_t n = seen_keys(b, r);
    if (b.mask.data) mask_row(b.mask, r, n, s);
    b.high[r] = max_row(s, hide_rest(s, n));
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    T high = top[r] > b.high[r] ? top[r] : b.high[r];
    T base = high == -kInfinity<T> ? T(0) : high;  // nothing seen yet: every exponential is 0
    T shrink = math::exp_flush(top[r] - base);
    top[r] = high;
    b.high[r] = base;
    b.shrink[r] = shrink;
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    T *s = b.scores + r * b.ld, base = b.high[r];
    int64_t n = seen_keys(b, r), whole = hide_rest(s, n);
    T part[kLanes<T>] = {};
    for (int64_t i = 0; i < whole; i += kLanes<T>)
      for (int c = 0; c < kLanes<T>; ++c) {
        T e = math::exp_flush(s[i + c] - base);
        part[c] += e;
        s[i + c] = e;
      }
    for (int64_t c = whole; c < b.cols; ++c) s[c] = 0;
    sum[r] = sum[r] * b.shrink[r] + total(part);
    if (b.drop.threshold) drop_row<T>(b.drop, r, n, s, nullptr);
  }
  for (int64_t r = 0; r < b.rows; ++r)
    for (int64_t c = 0; c < width; ++c) acc[r * width + c] *= b.shrink[r];
}

template <class T>
void finish(int64_t rows, int64_t width, const T* top, T* sum, T* acc) {
  for (int64_t r = 0; r < rows; ++r) {
    T scale = sum[r] == 0 ? T(0) : T(1) / sum[r];
    for (int64_t c = 0; c < width; ++c) acc[r * width + c] *= scale;
    sum[r] = sum[r] == 0 ? -kInfinity<T> : top[r] + math::log(sum[r]);
  }
}

template <class T>
void backward(const ScoreBlock<T>& b, const T* lse, const T* delta, T scale, T* dweights) {
  for (int64_t r = 0; r < b.rows; ++r) {
    T *s = b.scores + r * b.ld, *d = dweights + r * b.ld;
    int64_t n = seen_keys(b, r);
    if (b.mask.data) mask_row(b.mask, r, n, s);
    T base = lse[r] == -kInfinity<T> ? kInfinity<T> : lse[r], level = delta[r];
    int64_t whole = hide_rest(s, n);
    for (int64_t i = 0; i < whole; i += kLanes<T>)
      for (int64_t c = i; c < i + kLanes<T>; ++c) s[c] = math::exp_flush(s[c] - base);
    if (b.drop.threshold) {  // d(weight) = keep * d(kept weight), and s goes on as the kept weight
      T kept[512];
      for (int64_t begin = 0; begin < n; begin += 512) {
        int64_t count = n - begin < 512 ? n - begin : 512;
        DropBlock drop = b.drop;
        drop.first += static_cast<uint64_t>(begin);
        for (int64_t c = 0; c < count; ++c) kept[c] = s[begin + c];
        drop_row<T>(drop, r, count, d + begin, kept);
        for (int64_t c = 0; c < count; ++c) d[begin + c] = s[begin + c] * (d[begin + c] - level) * scale;
        for (int64_t c = 0; c < count; ++c) s[begin + c] = kept[c];
      }
    } else {
      for (int64_t i = 0; i < whole; i += kLanes<T>)
        for (int64_t c = i; c < i + kLanes<T>; ++c) d[c] = s[c] * (d[c] - level) * scale;
    }
    for (int64_t c = n; c < whole; ++c) d[c] = 0;
    for (int64_t c = whole; c < b.cols; ++c) s[c] = d[c] = 0;
  }
}

template <class T>
void dots(int64_t rows, int64_t width, const T* a, int64_t lda, const T* b, int64_t ldb, T* delta) {
  for (int64_t r = 0; r < rows; ++r) delta[r] = dot_row(a + r * lda, b + r * ldb, width);
}

}  // namespace

const AttentionLoops<float> attention_loops_f32 = {forward<float>, finish<float>, backward<float>, dots<float>};
const AttentionLoops<double> attention_loops_f64 = {forward<double>, finish<double>, backward<double>, dots<double>};

}  // namespace cleave::cpu::CLEAVE_ISA
