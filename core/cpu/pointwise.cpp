#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/functions.h>
#include <cleave/core/cpu/pointwise.h>
#include <cleave/core/cpu/turned.h>
#include <cleave/core/error.h>

#include <cmath>
#include <optional>

namespace cleave::cpu {
namespace {

constexpr int kMaxInputs = 3;

int arity(Pointwise fn) { return fn < Pointwise::add ? 1 : fn < Pointwise::where ? 2 : 3; }

BlockFn find(Pointwise fn, Compute type) {
  int f = static_cast<int>(fn), t = static_cast<int>(type);
  if (fn < Pointwise::add) return CLEAVE_PICK(unary_loops).fn[f][t];
  return fn < Pointwise::relu_grad ? CLEAVE_PICK(binary_loops).fn[f][t] : CLEAVE_PICK(gradient_loops).fn[f][t];
}

bool takes_scalar(Pointwise fn) {
  return fn >= Pointwise::add_scalar && fn <= Pointwise::min_scalar && fn != Pointwise::clamp;
}
bool compares_scalar(Pointwise fn) { return fn >= Pointwise::eq_scalar && fn <= Pointwise::ge_scalar; }

Compute choose(Pointwise fn, std::span<const View* const> in, const View& out, double p) {
  size_t first = fn == Pointwise::where ? 1 : 0;
  DType t = in[first]->dtype;
  for (size_t k = first + 1; k < in.size(); ++k) t = promote(t, in[k]->dtype);
  Compute type = compute_type(t);
  if (type != Compute::i64) return type;
  if (!find(fn, type)) return Compute::f32;
  // Integers meet a number that is none: as a bound it must not be truncated, and a floating result wants it whole.
  if (compares_scalar(fn) && p != std::trunc(p)) return Compute::f64;
  if (takes_scalar(fn) && is_floating(out.dtype)) return compute_type(out.dtype);
  return type;
}

// x^p for the exponents that have a cheaper function.
Pointwise cheaper(Pointwise fn, PointwiseParams& params) {
  if (fn == Pointwise::pow_scalar) {
    if (params.p == 2) return Pointwise::square;
    if (params.p == 0.5) return Pointwise::sqrt;
    if (params.p == -0.5) return Pointwise::rsqrt;
    if (params.p == -1) return Pointwise::reciprocal;
  }
  if (fn == Pointwise::pow_scalar_grad && params.p == 2) return Pointwise::square_grad;
  return fn;
}

bool dense_as(const View& x, const View& out) { return x.dtype == out.dtype && x.shape == out.shape && x.contiguous(); }

// Small tensors that need no walk: dense ones of out's shape and dtype, and single elements.
bool run_small(BlockFn f, std::span<const View* const> in, const View& out, PointwiseParams params, Compute type) {
  int64_t n = out.numel();
  if (n > kBlock * kGrainBlocks || out.dtype != stored_as(type) || !out.contiguous()) return false;
  alignas(64) std::byte repeated[kMaxInputs][kBlock * 8];
  const void* data[kMaxInputs];
  for (size_t k = 0; k < in.size(); ++k) {
    const View& x = *in[k];
    if (dense_as(x, out)) {
      data[k] = x.data;
    } else if (n <= kBlock && x.numel() == 1) {
      auto load = CLEAVE_PICK(convert_loops).load[static_cast<int>(x.dtype)][static_cast<int>(type)];
      load(x.data, 0, n, repeated[k]);
      data[k] = repeated[k];
    } else {
      return false;
    }
  }
  f(data, out.data, n, params);
  return true;
}

void run(BlockFn f, std::span<const View* const> in, const View& out, PointwiseParams params, Compute type) {
  std::optional<Turned> straight[kMaxInputs];
  Blocks blocks(out, type);
  for (size_t k = 0; k < in.size(); ++k) blocks.in(straight[k].emplace(*in[k], out).view());
  blocks.out(out);
  blocks.run([&](int64_t, int64_t n, const void* const* from, void* const* to) { f(from, to[0], n, params); });
}

}  // namespace

void pointwise(Pointwise fn, std::span<const View* const> in, const View& out, PointwiseParams params) {
  if (static_cast<int>(in.size()) != arity(fn))
    throw ValueError("[pointwise] function " + std::to_string(static_cast<int>(fn)) + " takes " +
                     std::to_string(arity(fn)) + " inputs, not " + std::to_string(in.size()));
  if (out.numel() == 0) return;
  Compute type = choose(fn, in, out, params.p);
  BlockFn f = find(type == Compute::i64 ? fn : cheaper(fn, params), type);
  if (!run_small(f, in, out, params, type)) run(f, in, out, params, type);
}

int64_t pointwise_scratch(std::span<const View* const> in, const View& out) {
  int64_t bytes = 0;
  for (const View* x : in) bytes += Turned::copy_bytes(*x, out);
  return bytes;
}

void add(const View& a, const View& b, const View& out) {
  const View* in[] = {&a, &b};
  if (out.numel() == 0) return;
  Compute type = compute_type(out.dtype);
  run(find(Pointwise::add, type), in, out, {}, type);
}

void accumulate(const View& x, const View& acc) { add(acc, x, acc); }

}  // namespace cleave::cpu
