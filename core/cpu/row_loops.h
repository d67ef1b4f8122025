// The row loops of this process's instruction set, by element type.
#pragma once
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/rows.h>

namespace cleave::cpu {

inline const RowLoops<float>& row_loops(float) { return CLEAVE_PICK(row_loops_f32); }
inline const RowLoops<double>& row_loops(double) { return CLEAVE_PICK(row_loops_f64); }

}  // namespace cleave::cpu
