// A move of a block and its conversion, in the order of the strided side's memory.
#include <cleave/core/cpu/loops/panel.h>
#include <cleave/core/math/half.h>

namespace cleave::cpu::CLEAVE_ISA {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline double read(double x) { return x; }
[[gnu::always_inline]] inline float read(float x) { return x; }
[[gnu::always_inline]] inline float read(Bf16 x) { return math::from_bf16(x.bits); }
[[gnu::always_inline]] inline float read(F16 x) { return math::from_f16(x.bits); }

[[gnu::always_inline]] inline void write(double x, double& to) { to = x; }
[[gnu::always_inline]] inline void write(double x, float& to) { to = static_cast<float>(x); }
[[gnu::always_inline]] inline void write(float x, Bf16& to) { to.bits = math::to_bf16(x); }
[[gnu::always_inline]] inline void write(float x, F16& to) { to.bits = math::to_f16(x); }

template <class S, class T>
void load_from(const S* from, int64_t row, int64_t col, int64_t rows, int64_t cols, T* to, int64_t ld) {
  if (col == 1) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[r * ld + c] = static_cast<T>(read(from[r * row + c]));
  } else if (row < col) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) to[r * ld + c] = static_cast<T>(read(from[c * col + r * row]));
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[r * ld + c] = static_cast<T>(read(from[r * row + c * col]));
  }
}

template <class T, class D>
void store_to(const T* from, int64_t ld, int64_t rows, int64_t cols, D* to, int64_t row, int64_t col) {
  if (col == 1) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) write(from[r * ld + c], to[r * row + c]);
  } else if (row < col) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) write(from[r * ld + c], to[c * col + r * row]);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) write(from[r * ld + c], to[r * row + c * col]);
  }
}

template <class T>
void load(const Grid& from, int64_t rows, int64_t cols, T* to, int64_t ld) {
  auto as = [&](auto* p) { load_from(p, from.row, from.col, rows, cols, to, ld); };
  switch (from.dtype) {
    case 0:
      return as(static_cast<const double*>(from.data));
    case 1:
      return as(static_cast<const float*>(from.data));
    case 2:
      return as(static_cast<const Bf16*>(from.data));
    default:
      return as(static_cast<const F16*>(from.data));
  }
}

void store(const float* from, int64_t ld, int64_t rows, int64_t cols, const Grid& to) {
  auto as = [&](auto* p) { store_to(from, ld, rows, cols, p, to.row, to.col); };
  switch (to.dtype) {
    case 0:
      return as(static_cast<double*>(to.data));
    case 1:
      return as(static_cast<float*>(to.data));
    case 2:
      return as(static_cast<Bf16*>(to.data));
    default:
      return as(static_cast<F16*>(to.data));
  }
}
void store(const double* from, int64_t ld, int64_t rows, int64_t cols, const Grid& to) {
  auto as = [&](auto* p) { store_to(from, ld, rows, cols, p, to.row, to.col); };
  if (to.dtype == 0)
    as(static_cast<double*>(to.data));
  else
    as(static_cast<float*>(to.data));
}

}  // namespace

const PanelLoops<float> panel_loops_f32 = {load<float>, store};
const PanelLoops<double> panel_loops_f64 = {load<double>, store};

}  // namespace cleave::cpu::CLEAVE_ISA
