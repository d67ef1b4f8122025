#include <cleave/core/cpu/gemm_blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/convert.h>
#include <cleave/core/cpu/matmul.h>
#include <cleave/core/cpu/scratch.h>
#include <cleave/core/cpu/workspace.h>
#include <cleave/core/parallel.h>

#include <algorithm>
#include <optional>

namespace cleave::cpu {
namespace {

// Blocks of A: whole rows of it, or of a transposed one a part of its columns, summed by parts of k. Fixed sizes, so
// that threads change no bits. The product packs all of B for each block of rows: they must not be few.
constexpr int64_t kRows = 512, kDepth = 2048, kTransposedRows = 1024, kTransposedDepth = 512;
constexpr int64_t kPad = 16;  // a power of two between rows would bring their elements into few cache sets

int64_t padded(int64_t ld) { return (ld + kPad - 1) / kPad * kPad + kPad; }

const char* at(const Matrix& x, int64_t row, int64_t column) {
  return static_cast<const char*>(x.data) + (row * x.ld + column) * size_of(x.dtype);
}

// Stored rows [row, row + rows) and columns [column, column + columns) as f32.
void load(const Matrix& x, int64_t row, int64_t column, int64_t rows, int64_t columns, float* to, int64_t ld) {
  auto convert = CLEAVE_PICK(convert_loops).load[static_cast<int>(x.dtype)][static_cast<int>(Compute::f32)];
  for (int64_t r = 0; r < rows; ++r) convert(at(x, row + r, column), 1, columns, to + r * ld);
}

// Itself if f32, else an f32 copy, dense as stored.
class Whole {
 public:
  Whole(const Matrix& x, int64_t rows, int64_t columns) : matrix_(x) {
    if (x.dtype == DType::f32) return;
    memory_.emplace(bytes(x, rows, columns));
    if (x.transposed) std::swap(rows, columns);
    int64_t ld = padded(columns);
    parallel_for(rows, std::max<int64_t>(1, 100'000 / std::max<int64_t>(1, columns)), [&](int64_t begin, int64_t end) {
      load(x, begin, 0, end - begin, columns, memory_->as<float>() + begin * ld, ld);
    });
    matrix_ = {memory_->data(), DType::f32, ld, x.transposed};
  }
  static int64_t bytes(const Matrix& x, int64_t rows, int64_t columns) {
    if (x.dtype == DType::f32) return 0;
    if (x.transposed) std::swap(rows, columns);
    return rows * padded(columns) * int64_t{sizeof(float)};
  }
  const float* row(int64_t k) const {
    return static_cast<const float*>(matrix_.data) + k * (matrix_.transposed ? 1 : matrix_.ld);
  }
  int64_t ld() const { return matrix_.ld; }
  bool transposed() const { return matrix_.transposed; }

 private:
  Matrix matrix_;
  std::optional<Scratch> memory_;
};

struct Job {
  int64_t m, n, k;
  const Matrix& a;
  const Whole& b;
  const float* bias;
  DType type;
  char* c;
};

// Rows [i0, i0 + rows) of C.
void block(const Job& j, int64_t i0, int64_t rows) {
  bool direct = j.type == DType::f32;
  int64_t depth = std::min(j.k, j.a.transposed ? kTransposedDepth : kDepth);
  int64_t ld = padded(j.a.transposed ? rows : depth);
  int64_t blocks = j.a.transposed ? depth * ld : rows * ld;
  Workspace<float, 2> memory(blocks + (direct ? 0 : rows * j.n));
  float* a = memory.data();
  float* c = direct ? reinterpret_cast<float*>(j.c) + i0 * j.n : a + blocks;
  for (int64_t r = 0; j.bias && r < rows; ++r) std::copy_n(j.bias, j.n, c + r * j.n);
  if (j.k == 0 && !j.bias) std::fill_n(c, rows * j.n, 0.0F);
  for (int64_t k0 = 0; k0 < j.k; k0 += depth) {
    int64_t d = std::min(depth, j.k - k0);
    if (j.a.transposed)
      load(j.a, k0, i0, d, rows, a, ld);
    else
      load(j.a, i0, k0, rows, d, a, ld);
    gemm(j.a.transposed, j.b.transposed(), rows, j.n, d, 1.0F, a, ld, j.b.row(k0), j.b.ld(),
         j.bias || k0 > 0 ? 1.0F : 0.0F, c, j.n);
  }
  if (direct) return;
  auto store = CLEAVE_PICK(convert_loops).store[static_cast<int>(j.type)][static_cast<int>(Compute::f32)];
  store(c, rows * j.n, j.c + i0 * j.n * size_of(j.type), 1);
}

}  // namespace

void gemm_blocks(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const void* bias, DType bias_type,
                 DType type, void* c) {
  Whole right(b, k, n);
  std::optional<Whole> added;
  if (bias) added.emplace(Matrix{bias, bias_type, n, false}, 1, n);
  Job job{m, n, k, a, right, bias ? added->row(0) : nullptr, type, static_cast<char*>(c)};
  int64_t rows = a.transposed ? kTransposedRows : kRows;
  parallel_for((m + rows - 1) / rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) block(job, i * rows, std::min(rows, m - i * rows));
  });
}

int64_t gemm_blocks_scratch(int64_t n, int64_t k, const Matrix& b, bool bias, DType bias_type) {
  return Whole::bytes(b, k, n) + (bias ? Whole::bytes({nullptr, bias_type, n, false}, 1, n) : 0);
}

bool columns_collide(int64_t ld, int64_t columns) { return ld % 512 == 0 && ld > 1024 && columns > 1024; }

}  // namespace cleave::cpu
