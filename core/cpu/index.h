// Gathers and scatters on the CPU. Indices are i64 or i32.
#pragma once
#include <cstdint>

#include <cleave/core/view.h>

namespace cleave::cpu {

/// Throws IndexError "[op] index 9 is out of range for a dim of size 4" unless 0 <= index < size (or index == ignore).
void check_indices(const char* op, const View& index, int64_t size, int64_t ignore = INT64_MIN);

/// The bytes of the dense copy of `index` that each function here takes; data is not looked at.
int64_t index_scratch(const View& index);

/// out[i..., :] = table[index[i...] - first, ...] for table [rows, ...]; indices outside this block of rows give zeros.
void take_rows(const View& table, const View& index, int64_t first, const View& out);
/// dtable[r, ...] = sum of dout over index == r + first, in order of position; other rows 0.
void add_rows(const View& dout, const View& index, int64_t first, const View& dtable);

/// out = x with dim indexed by the 1-D index (PyTorch index_select); indices are relative to `first`, others give
/// zeros.
void index_select(const View& x, int dim, const View& index, int64_t first, const View& out);
/// dx = dout scattered: dx[.., index[i], ..] += dout[.., i, ..].
void index_add(const View& dout, int dim, const View& index, int64_t first, const View& dx);

/// out[i][j][k] = x[i][index[i][j][k] - first][k] for dim 1, and so on (PyTorch gather); others give 0. Along the other
/// dims index's sizes may be smaller than x's.
void gather(const View& x, int dim, const View& index, int64_t first, const View& out);
/// dx = dout scattered likewise, summed in order of position; dx is zeroed first.
void scatter_add(const View& dout, int dim, const View& index, int64_t first, const View& dx);

/// Rotates pairs of the last dim D of x [..., T, D] by position * base^(-2i/D) (RoPE, Su et al. 2021); pairs are
/// (i, i + D/2), or (2i, 2i+1) if interleaved. Position of row t: first + t. `inverse` rotates back (the gradient).
void rope(const View& x, double base, int64_t first, bool interleaved, bool inverse, const View& out);

}  // namespace cleave::cpu
