// Moves between strided elements of any floating dtype and a dense row-major panel of f32 or f64.
#pragma once
#include <cstdint>

#include <cleave/core/cpu/loops/pick.h>

namespace cleave::cpu {

/// One side of a move: element (r, c) lies at data + r * row + c * col elements.
struct Grid {
  void* data;
  int dtype;  // of DType: f64, f32, bf16 or f16
  int64_t row, col;
};

template <class T>
struct PanelLoops {
  void (*load)(const Grid& from, int64_t rows, int64_t cols, T* to, int64_t ld);
  void (*store)(const T* from, int64_t ld, int64_t rows, int64_t cols, const Grid& to);
};

// clang-format off
CLEAVE_EACH_ISA(extern const PanelLoops<float> panel_loops_f32)
CLEAVE_EACH_ISA(extern const PanelLoops<double> panel_loops_f64)
// clang-format on

}  // namespace cleave::cpu
