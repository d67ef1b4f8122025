#include <cleave/core/cpu/loops/register_tile.h>
#include <cleave/core/cpu/loops/simd.h>
#include <cleave/core/cpu/loops/small_product.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

constexpr int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// `rows` rows, `Vectors` vectors wide, over p in [p0, p1). Rows past the last repeat it and are not stored.
template <class T, int Vectors>
void tile(const SmallProduct<T>& x, int64_t i0, int64_t rows, int64_t j0, int64_t p0, int64_t p1) {
  using V = typename TileVector<T>::type;
  using Loose = typename TileVector<T>::loose;
  constexpr int L = TileVector<T>::lanes;
  const T* a[kTileRows];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) a[i] = x.a + (i0 + (i < rows ? i : rows - 1)) * x.a_row;
  const T* b = x.b + p0 * x.ldb + j0;
  V sum[kTileRows][Vectors] = {};
  for (int64_t p = p0 * x.a_col, end = p1 * x.a_col; p < end; p += x.a_col, b += x.ldb) {
    V right[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) right[v] = *reinterpret_cast<const Loose*>(b + v * L);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[i][v] += a[i][p] * right[v];
  }
  T* c = x.c + i0 * x.ldc + j0;
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
    if (i >= rows) break;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      auto& to = *reinterpret_cast<Loose*>(c + i * x.ldc + v * L);
      to = x.add ? to + x.scale * sum[i][v] : x.scale * sum[i][v];
    }
  }
}

template <class T>
void run(const SmallProduct<T>& x) {
  constexpr int64_t L = TileVector<T>::lanes, width = kTileVectors * L;
  int64_t n = (x.n + kSmallWidth - 1) / kSmallWidth * kSmallWidth;
  for (int64_t j = 0; j < n; j += width)
    for (int64_t i = 0; i < x.m; i += kTileRows) {
      int64_t rows = x.m - i < kTileRows ? x.m - i : kTileRows, last = x.seen + i + rows - 1;
      int64_t p0 = 0, p1 = x.k, end = n;
      if (x.triangle == Triangle::result) end = clamp((last + L - 1) / L * L, 0, n);
      if (x.triangle == Triangle::left) p1 = clamp(last, 0, x.k);
      if (x.triangle == Triangle::turned) p0 = clamp(i + 1 - x.seen, 0, x.k);
      if (end - j >= width)
        tile<T, kTileVectors>(x, i, rows, j, p0, p1);
      else if (kTileVectors > 2 && end - j > L)
        tile<T, 2>(x, i, rows, j, p0, p1);
      else if (end > j)
        tile<T, 1>(x, i, rows, j, p0, p1);
    }
}

#if defined(__AVX512F__)
// One of four stages: swaps the halves of each group of 2 * Step lanes between rows that are Step apart.
template <int Step>
[[gnu::always_inline]] inline void exchange(Simd<float>* row) {
  typedef int32_t Index __attribute__((vector_size(64)));
  Index low, high;
  for (int l = 0; l < 16; ++l) {
    low[l] = l & Step ? 16 + l - Step : l;
    high[l] = l & Step ? 16 + l : l + Step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i & Step) continue;
    Simd<float> a = row[i], b = row[i + Step];
    row[i] = __builtin_shuffle(a, b, low);
    row[i + Step] = __builtin_shuffle(a, b, high);
  }
}

[[gnu::always_inline]] inline bool turn_block(const float* from, int64_t ld, float* to, int64_t to_ld) {
  Simd<float> row[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) row[i] = load(from + i * ld);
  exchange<1>(row);
  exchange<2>(row);
  exchange<4>(row);
  exchange<8>(row);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) *reinterpret_cast<SimdOf<float>::loose*>(to + i * to_ld) = row[i];
  return true;
}
#else
[[gnu::always_inline]] inline bool turn_block(const float*, int64_t, float*, int64_t) { return false; }
#endif
[[gnu::always_inline]] inline bool turn_block(const double*, int64_t, double*, int64_t) { return false; }

template <class T>
void turn(const T* from, int64_t ld, int64_t rows, int64_t cols, T* to, int64_t to_ld) {
  for (int64_t r0 = 0; r0 < rows; r0 += 16)
    for (int64_t c0 = 0; c0 < cols; c0 += 16) {
      int64_t r1 = r0 + 16 < rows ? r0 + 16 : rows, c1 = c0 + 16 < cols ? c0 + 16 : cols;
      if (r1 - r0 == 16 && c1 - c0 == 16 && turn_block(from + r0 * ld + c0, ld, to + c0 * to_ld + r0, to_ld)) continue;
      for (int64_t c = c0; c < c1; ++c)
        for (int64_t r = r0; r < r1; ++r) to[c * to_ld + r] = from[r * ld + c];
    }
}

}  // namespace

const SmallProductLoops<float> small_product_loops_f32 = {run<float>, turn<float>};
const SmallProductLoops<double> small_product_loops_f64 = {run<double>, turn<double>};

}  // namespace cleave::cpu::CLEAVE_ISA
