// Products of blocks that stay in the first-level caches, without packing: for attention.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// Rows of blocks have room for a multiple of this many elements, and products write it in full.
inline constexpr int64_t kSmallWidth = 16;

/// Which part of a product matters when row r of a block of scores sees its first seen + r columns.
enum class Triangle : uint8_t {
  none,
  result,  ///< C are the scores: later columns need not be written
  left,    ///< A are the scores: later ones are 0
  turned   ///< A are the scores transposed
};

/// C[m, n] (+)= scale * A[m, k] B[k, n]; element (i, p) of A lies at a + i * a_row + p * a_col.
template <class T>
struct SmallProduct {
  int64_t m, n, k;
  T scale;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  bool add;
  Triangle triangle = Triangle::none;
  int64_t seen = 0;
};

template <class T>
struct SmallProductLoops {
  void (*run)(const SmallProduct<T>&);
  /// to[c, r] = from[r, c].
  void (*turn)(const T* from, int64_t ld, int64_t rows, int64_t cols, T* to, int64_t to_ld);
};

// clang-format off
CLEAVE_EACH_ISA(extern const SmallProductLoops<float> small_product_loops_f32)
CLEAVE_EACH_ISA(extern const SmallProductLoops<double> small_product_loops_f64)
// clang-format on

}  // namespace cleave::cpu
