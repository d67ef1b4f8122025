// Batches of products: operands are brought into a form that a library product takes, without copies where it can be.
#include <cleave/core/cpu/gemm_bf16.h>
#include <cleave/core/cpu/gemm_blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/linear_f32.h>
#include <cleave/core/cpu/loops/gemm.h>
#include <cleave/core/cpu/matmul.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/scratch.h>
#include <cleave/core/parallel.h>

#include <algorithm>
#include <memory>

namespace cleave::cpu {
namespace {

// One operand: a matrix per batch index, row-major or (`transposed`) column-major with leading stride `ld`.
struct Operand {
  View view;
  int64_t ld = 1;
  bool transposed = false;
  std::unique_ptr<Scratch> owned;

  Matrix matrix() const { return {view.data, view.dtype, ld, transposed}; }
};

// Whether the last two dims are one dense matrix, in either order; dims of size 1 fit any stride.
bool find_order(Operand& x) {
  int r = x.view.rank();
  int64_t rows = x.view.shape[r - 2], cols = x.view.shape[r - 1];
  int64_t row = x.view.strides[r - 2], col = x.view.strides[r - 1];
  if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
    x.transposed = false;
    x.ld = rows == 1 ? std::max<int64_t>(cols, 1) : row;
    return true;
  }
  if ((row == 1 || rows == 1) && (col >= rows || cols == 1)) {
    x.transposed = true;
    x.ld = cols == 1 ? std::max<int64_t>(rows, 1) : col;
    return true;
  }
  return false;
}

void swap_last_two(View& v) {
  int r = v.rank();
  std::swap(v.shape[r - 1], v.shape[r - 2]);
  std::swap(v.strides[r - 1], v.strides[r - 2]);
}

// Memory that operands take, counted in place of being used.
struct Need {
  int64_t held = 0;  // until the product is there
  int64_t most = 0;
};

// A dense copy in `dtype`, holding expanded batch dims once; a transposed matrix stays so if `in_order`. With `need`
// nothing is copied, and the view has no data.
void materialise(Operand& x, DType dtype, bool in_order, Need* need) {
  bool swapped = in_order && find_order(x) && x.transposed;
  if (swapped) swap_last_two(x.view);
  View source = x.view;
  for (int d = 0; d + 2 < source.rank(); ++d)
    if (source.strides[d] == 0) source.shape[d] = std::min<int64_t>(source.shape[d], 1);
  View dense{nullptr, dtype, source.shape, contiguous_strides(source.shape)};
  std::unique_ptr<Scratch> memory;
  if (need) {
    need->held += source.numel() * size_of(dtype);
    need->most = std::max(need->most, need->held + copy_scratch(source, dense));
  } else {
    memory.reset(new Scratch(source.numel() * size_of(dtype)));
    dense.data = memory->data();
    copy(source, dense);
  }
  for (int d = 0; d + 2 < source.rank(); ++d)
    if (x.view.strides[d] == 0) dense.strides[d] = 0;
  dense.shape = x.view.shape;
  if (swapped) swap_last_two(dense);
  x.view = dense;
  x.owned = std::move(memory);
}

Operand prepare(const View& view, DType dtype, bool dense = false, Need* need = nullptr) {
  Operand x;
  x.view = view;
  if (view.dtype != dtype || !find_order(x) || (dense && (x.transposed || x.ld != view.shape.back()))) {
    materialise(x, dtype, !dense, need);
    find_order(x);
  }
  return x;
}

// Strides over the batch dims of out, 0 where the operand is broadcast.
Strides batch_strides(const View& x, const Shape& batch) {
  Strides out;
  out.resize(batch.rank());
  int shift = batch.rank() - (x.rank() - 2);
  for (int d = shift; d < batch.rank(); ++d)
    if (x.shape[d - shift] != 1) out[d] = x.strides[d - shift];
  return out;
}

int64_t offset_at(int64_t index, const Shape& batch, const Strides& strides) {
  int64_t offset = 0;
  for (int d = batch.rank() - 1; d >= 0; --d) {
    offset += index % batch[d] * strides[d];
    index /= batch[d];
  }
  return offset;
}

// The stride from one batch index to the next, if the batch is a single run of equal steps; else -1.
int64_t uniform_step(const Shape& batch, const Strides& strides) {
  int64_t step = -1, size = 1;
  for (int d = batch.rank() - 1; d >= 0; --d) {
    if (batch[d] == 1) continue;
    if (step < 0)
      step = strides[d];
    else if (strides[d] != step * size)
      return -1;
    size *= batch[d];
  }
  return step < 0 ? 0 : step;
}

struct Sizes {
  int64_t batch, m, n, k;
};

// With one b for the whole batch, the rows of all a are those of a single product.
bool fold_batch(const Operand& a, const Strides& a_steps, const Strides& b_steps, const Shape& batch, Sizes& s) {
  if (s.batch == 1 || a.transposed || uniform_step(batch, b_steps) != 0) return false;
  if (s.m > 1 && uniform_step(batch, a_steps) != s.m * a.ld) return false;
  if (s.m == 1 && uniform_step(batch, a_steps) < s.k) return false;
  return true;
}

// `one(a offset, b offset, index)` computes one product. Small ones share the threads between them.
template <class F>
void for_batch(const Sizes& s, const Shape& batch, const Strides& a_steps, const Strides& b_steps, F one) {
  constexpr int64_t kSmall = 256 * 256 * 256, kGrain = 100'000;
  int64_t work = std::max<int64_t>(1, s.m * s.n * s.k);
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(offset_at(i, batch, a_steps), offset_at(i, batch, b_steps), i);
  };
  if (work <= kSmall && s.batch > 1)
    parallel_for(s.batch, std::max<int64_t>(1, kGrain / work), run);
  else
    run(0, s.batch);
}

template <class T>
void multiply(const Operand& a, const Operand& b, const Shape& batch, Sizes s, T* out) {
  if constexpr (sizeof(T) == sizeof(float))
    if (s.batch == 1 && a.transposed && columns_collide(a.ld, s.m))
      return gemm_blocks(s.m, s.n, s.k, a.matrix(), b.matrix(), nullptr, DType::f32, DType::f32, out);
  Strides a_steps = batch_strides(a.view, batch), b_steps = batch_strides(b.view, batch);
  const T *left = a.view.as<T>(), *right = b.view.as<T>();
  if (fold_batch(a, a_steps, b_steps, batch, s)) {
    int64_t ld = s.m == 1 ? uniform_step(batch, a_steps) : a.ld;
    return gemm(false, b.transposed, s.batch * s.m, s.n, s.k, T(1), left, ld, right, b.ld, T(0), out, s.n);
  }
  for_batch(s, batch, a_steps, b_steps, [&](int64_t i, int64_t j, int64_t at) {
    gemm(a.transposed, b.transposed, s.m, s.n, s.k, T(1), left + i, a.ld, right + j, b.ld, T(0), out + at * s.m * s.n,
         s.n);
  });
}

void multiply_integers(const Operand& a, const Operand& b, const Shape& batch, Sizes s, int64_t* out) {
  Strides a_steps = batch_strides(a.view, batch), b_steps = batch_strides(b.view, batch);
  const GemmLoops& loops = CLEAVE_PICK(gemm_loops);
  for_batch(s, batch, a_steps, b_steps, [&](int64_t i, int64_t j, int64_t at) {
    loops.i64(s.m, s.n, s.k, a.view.as<int64_t>() + i, b.view.as<int64_t>() + j, out + at * s.m * s.n);
  });
}

// On units for bf16, where there are any.
bool multiply_bf16(const Operand& a, const Operand& b, const Shape& batch, Sizes s, const View& out) {
  bool to_bf16 = out.dtype == DType::bf16;
  Strides a_steps = batch_strides(a.view, batch), b_steps = batch_strides(b.view, batch);
  bool done = true;  // whether the first succeeds holds for all: only their places differ
  for_batch(s, batch, a_steps, b_steps, [&](int64_t i, int64_t j, int64_t at) {
    Matrix left = a.matrix(), right = b.matrix();
    left.data = a.view.as<uint16_t>() + i;
    right.data = b.view.as<uint16_t>() + j;
    char* to = static_cast<char*>(out.data) + at * s.m * s.n * size_of(out.dtype);
    if (!gemm_bf16(s.m, s.n, s.k, left, right, nullptr, to_bf16, to) && at == 0) done = false;
  });
  return done;
}

bool are_halves(const View& a, const View& b, const View& out) {
  return a.dtype == b.dtype && is_half(a.dtype) && (is_half(out.dtype) || out.dtype == DType::f32);
}

// Whether `multiply_bf16` is tried; on a CPU that has such units it does not fail.
bool bf16_product(const View& a, const View& out, const Sizes& s) {
  return a.dtype == DType::bf16 && out.dtype != DType::f16 && has_fast_bf16() && std::min({s.m, s.n, s.k}) > 0;
}

// Halves into halves or f32.
bool multiply_halves(const View& a_view, const View& b_view, const Shape& batch, Sizes s, const View& out) {
  if (!are_halves(a_view, b_view, out)) return false;
  Operand a = prepare(a_view, a_view.dtype), b = prepare(b_view, b_view.dtype);
  Strides a_steps = batch_strides(a.view, batch), b_steps = batch_strides(b.view, batch);
  if (fold_batch(a, a_steps, b_steps, batch, s)) {
    if (s.m == 1) a.ld = uniform_step(batch, a_steps);
    s.m *= s.batch;
    s.batch = 1;
    a_steps = b_steps = {};
  }
  Shape products = s.batch == 1 ? Shape{} : batch;
  if (bf16_product(a_view, out, s) && multiply_bf16(a, b, products, s, out)) return true;
  if (s.batch > 1) return false;
  gemm_blocks(s.m, s.n, s.k, a.matrix(), b.matrix(), nullptr, out.dtype, out.dtype, out.data);
  return true;
}

// What `multiply_halves` takes; whether it makes the product.
bool halves_need(const View& a_view, const View& b_view, const Shape& batch, Sizes s, const View& out, Need& need) {
  if (!are_halves(a_view, b_view, out)) return false;
  Operand a = prepare(a_view, a_view.dtype, false, &need), b = prepare(b_view, b_view.dtype, false, &need);
  if (bf16_product(a_view, out, s)) return true;
  if (s.batch > 1 && !fold_batch(a, batch_strides(a.view, batch), batch_strides(b.view, batch), batch, s)) return false;
  need.held += gemm_blocks_scratch(s.n, s.k, b.matrix(), false, DType::f32);
  need.most = std::max(need.most, need.held);
  return true;
}

// The dtype that a product is computed in when it is not that of the tensors.
DType compute_type(DType t) { return is_floating(t) ? (t == DType::f64 ? t : DType::f32) : DType::i64; }

Shape batch_of(const View& out) {
  Shape batch = out.shape;
  batch.resize(out.rank() - 2);
  return batch;
}

Sizes sizes_of(const View& a, const View& out, const Shape& batch) {
  return {numel(batch), out.shape[out.rank() - 2], out.shape[out.rank() - 1], a.shape.back()};
}

}  // namespace

int64_t matmul_scratch(const View& a, const View& b, const View& out) {
  Shape batch = batch_of(out);
  Sizes s = sizes_of(a, out, batch);
  if (s.batch * s.m * s.n == 0) return 0;
  Need halves, need;
  if (halves_need(a, b, batch, s, out, halves)) return halves.most;
  DType type = compute_type(out.dtype);
  bool integer = type == DType::i64;
  prepare(a, type, integer, &need);
  prepare(b, type, integer, &need);
  int64_t result = out.dtype == type ? 0 : out.numel() * size_of(type);
  return std::max({halves.most, need.most, need.held + result});
}

void matmul(const View& a, const View& b, const View& out) {
  Shape batch = batch_of(out);
  Sizes s = sizes_of(a, out, batch);
  if (s.batch * s.m * s.n == 0) return;
  if (multiply_halves(a, b, batch, s, out)) return;
  DType type = compute_type(out.dtype);
  bool integer = type == DType::i64;
  Operand left = prepare(a, type, integer), right = prepare(b, type, integer);
  std::unique_ptr<Scratch> memory;
  View result = out;
  if (out.dtype != type) {
    memory.reset(new Scratch(out.numel() * size_of(type)));
    result = View{memory->data(), type, out.shape, contiguous_strides(out.shape)};
  }
  if (integer)
    multiply_integers(left, right, batch, s, result.as<int64_t>());
  else if (type == DType::f64)
    multiply(left, right, batch, s, result.as<double>());
  else
    multiply(left, right, batch, s, result.as<float>());
  if (memory) copy(result, out);
}

namespace {

template <class T>
void linear_rows(const View& x, const View& w, const View* bias, T* out) {
  int64_t m = x.shape[0], n = w.shape[0], k = w.shape[1];
  if constexpr (sizeof(T) == sizeof(float))
    if (bias && k > 0 && linear_f32(m, n, k, x.as<T>(), w.as<T>(), bias->as<T>(), out)) return;
  if (bias) {
    const T* from = bias->as<T>();
    parallel_for(m, std::max<int64_t>(1, 20'000 / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(from, n, out + i * n);
    });
  }
  gemm(false, true, m, n, k, T(1), x.as<T>(), std::max<int64_t>(1, k), w.as<T>(), std::max<int64_t>(1, k),
       bias ? T(1) : T(0), out, n);
}

View transposed(const View& w) { return {w.data, w.dtype, {w.shape[1], w.shape[0]}, {w.strides[1], w.strides[0]}}; }

bool are_linear_halves(const View& x, const View& w, const View* bias, const View& out) {
  return x.dtype == w.dtype && is_half(x.dtype) && out.dtype == x.dtype && (!bias || bias->dtype == x.dtype);
}

bool linear_halves(const View& x, const View& w, const View* bias, const View& out) {
  if (!are_linear_halves(x, w, bias, out)) return false;
  int64_t m = x.shape[0], n = w.shape[0], k = x.shape[1];
  Matrix a{x.data, x.dtype, k, false}, b{w.data, w.dtype, k, true};
  const void* added = bias ? bias->data : nullptr;
  if (x.dtype == DType::bf16 && has_fast_bf16() && k > 0 && gemm_bf16(m, n, k, a, b, added, true, out.data))
    return true;
  gemm_blocks(m, n, k, a, b, added, x.dtype, out.dtype, out.data);
  return true;
}

}  // namespace

int64_t linear_scratch(const View& x, const View& w, const View* bias, const View& out) {
  if (out.numel() == 0) return 0;
  int64_t n = w.shape[0], k = x.shape[1];
  if (are_linear_halves(x, w, bias, out)) {
    bool units = x.dtype == DType::bf16 && has_fast_bf16() && k > 0;
    return units ? 0 : gemm_blocks_scratch(n, k, {w.data, w.dtype, k, true}, bias != nullptr, x.dtype);
  }
  if (x.dtype == w.dtype && (!bias || bias->dtype == x.dtype) && out.dtype == x.dtype && is_floating(x.dtype)) return 0;
  if (!bias) return matmul_scratch(x, transposed(w), out);
  DType type = compute_type(out.dtype);
  View sum{nullptr, type, out.shape, contiguous_strides(out.shape)};
  return out.numel() * size_of(type) + matmul_scratch(x, transposed(w), sum);
}

void linear(const View& x, const View& w, const View* bias, const View& out) {
  if (out.numel() == 0) return;
  if (linear_halves(x, w, bias, out)) return;
  bool plain = x.dtype == out.dtype && w.dtype == out.dtype && (!bias || bias->dtype == out.dtype);
  if (plain && out.dtype == DType::f32) return linear_rows(x, w, bias, out.as<float>());
  if (plain && out.dtype == DType::f64) return linear_rows(x, w, bias, out.as<double>());
  if (!bias) return matmul(x, transposed(w), out);
  DType type = compute_type(out.dtype);
  std::unique_ptr<Scratch> memory(new Scratch(out.numel() * size_of(type)));
  View sum{memory->data(), type, out.shape, contiguous_strides(out.shape)};
  matmul(x, transposed(w), sum);
  accumulate({bias->data, bias->dtype, out.shape, {0, bias->strides[0]}}, sum);
  copy(sum, out);
}

}  // namespace cleave::cpu
