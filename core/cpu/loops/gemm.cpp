// Blocked products after Goto and van de Geijn (2008): packed panels, and a tile of C held in registers.
#include <cleave/core/cpu/loops/gemm.h>
#include <cleave/core/cpu/loops/register_tile.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

constexpr int64_t kBlockM = 96, kBlockN = 768, kBlockK = 256;  // multiples of every tile

// Packs X[rows, k] as panels of `width` rows, column by column, zero-padded.
template <class T>
void pack(const Factor<T>& x, int64_t rows, int64_t k, int64_t width, T scale, T* to) {
  for (int64_t i0 = 0; i0 < rows; i0 += width, to += width * k) {
    int64_t count = rows - i0 < width ? rows - i0 : width;
    const T* from = x.data + i0 * x.row;
    if (x.row == 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < count; ++i) to[p * width + i] = scale * from[i + p * x.col];
    } else {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t p = 0; p < k; ++p) to[p * width + i] = scale * from[i * x.row + p * x.col];
    }
    for (int64_t p = 0; p < k && count < width; ++p)
      for (int64_t i = count; i < width; ++i) to[p * width + i] = 0;
  }
}

// C[rows, cols] = beta * C + A B for one tile; `rows` and `cols` may be less than the tile's.
template <class T>
void tile(int64_t k, const T* a, const T* b, T beta, T* c, int64_t ldc, int64_t rows, int64_t cols) {
  using V = typename TileVector<T>::type;
  using Loose = typename TileVector<T>::loose;
  constexpr int L = TileVector<T>::lanes;
  V sum[kTileRows][kTileVectors] = {};
  for (int64_t p = 0; p < k; ++p, a += kTileRows, b += kTileVectors * L) {
    V right[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) right[v] = *reinterpret_cast<const Loose*>(b + v * L);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sum[i][v] += a[i] * right[v];
  }
  T out[kTileRows][kTileVectors * L];
  __builtin_memcpy(out, sum, sizeof sum);
  for (int64_t i = 0; i < rows; ++i) {
    if (beta == 0) {
      for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] = out[i][j];
    } else {
      for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] = beta * c[i * ldc + j] + out[i][j];
    }
  }
}

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <class T>
void product(const Product<T>& x, T* workspace) {
  constexpr int64_t width = kTileVectors * TileVector<T>::lanes;
  T *left = workspace, *right = workspace + kBlockM * kBlockK;
  for (int64_t j0 = 0; j0 < x.n; j0 += kBlockN) {
    int64_t n = least(x.n - j0, kBlockN);
    for (int64_t p0 = 0; p0 < x.k; p0 += kBlockK) {
      int64_t k = least(x.k - p0, kBlockK);
      T beta = p0 ? T(1) : x.beta;
      pack<T>({x.b.data + p0 * x.b.row + j0 * x.b.col, x.b.col, x.b.row}, n, k, width, T(1), right);
      for (int64_t i0 = 0; i0 < x.m; i0 += kBlockM) {
        int64_t m = least(x.m - i0, kBlockM);
        pack<T>({x.a.data + i0 * x.a.row + p0 * x.a.col, x.a.row, x.a.col}, m, k, kTileRows, x.alpha, left);
        for (int64_t j = 0; j < n; j += width)
          for (int64_t i = 0; i < m; i += kTileRows)
            tile(k, left + i * k, right + j * k, beta, x.c + (i0 + i) * x.ldc + j0 + j, x.ldc, least(m - i, kTileRows),
                 least(n - j, width));
      }
    }
  }
}

void integers(int64_t m, int64_t n, int64_t k, const int64_t* a, const int64_t* b, int64_t* c) {
  auto* to = reinterpret_cast<uint64_t*>(c);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) to[i * n + j] = 0;
    for (int64_t p = 0; p < k; ++p) {
      auto factor = static_cast<uint64_t>(a[i * k + p]);
      for (int64_t j = 0; j < n; ++j) to[i * n + j] += factor * static_cast<uint64_t>(b[p * n + j]);
    }
  }
}

}  // namespace

const GemmLoops gemm_loops = {kBlockK * (kBlockM + kBlockN), product<float>, product<double>, integers};

}  // namespace cleave::cpu::CLEAVE_ISA
