// Attention in blocks of queries and keys, so that memory is linear in their number: forward with a running maximum and
// sum, backward from the stored log-sum-exp.
#include <cleave/core/cpu/attention.h>
#include <cleave/core/cpu/attention_parts.h>
#include <cleave/core/cpu/matmul.h>

namespace cleave::cpu {
namespace {

// A block of keys of one head and the queries of one block against it.
template <class T>
struct Tile {
  Rows<T> q, k, v;
  int64_t b, h, i0, rows, j0, cols;
};

// `scores` has 2 * kQueries elements more, for the loops.
template <class T>
ScoreBlock<T> score_block(const Geometry& g, const View* mask, const Tile<T>& t, T* scores) {
  T* room = scores + kQueries * kKeys;
  ScoreBlock<T> out{scores, room, room + kQueries, kKeys, t.rows, t.cols, t.cols, 0, {}, {}};
  if (g.block.causal) {
    out.seen = g.seen(t.i0) - t.j0;
    out.seen_step = 1;
  }
  if (mask) out.mask = mask_block(*mask, t.b, t.h, t.i0, t.j0);
  if (g.block.dropout > 0) out.drop = g.drop(t.b, t.h, t.i0, t.j0);
  return out;
}

template <class T>
void scores_of(const Geometry& g, const Tile<T>& t, T* scores) {
  gemm(false, true, t.rows, t.cols, g.d, static_cast<T>(g.block.scale), t.q.data, t.q.ld, t.k.data + t.j0 * t.k.ld,
       t.k.ld, T(0), scores, kKeys);
}

template <class T>
void forward(const View& q, const View& k, const View& v, const View* mask, const Geometry& g, const View& out,
             const View& lse) {
  int64_t blocks = (g.tq + kQueries - 1) / kQueries;
  const AttentionLoops<T>& loops = attention_loops(T{});
  parallel_for(g.batch * g.heads * blocks, g.grain(), [&](int64_t begin, int64_t end) {
    Source<T> queries(q, kQueries), keys(k, g.tk), values(v, g.tk);
    Workspace<T, 5> memory(kQueries * (kKeys + 2 + g.dv + 2));
    T *scores = memory.data(), *acc = scores + kQueries * (kKeys + 2), *top = acc + kQueries * g.dv,
      *sum = top + kQueries;
    for (int64_t task = begin; task < end; ++task) {
      int64_t i0 = task % blocks * kQueries, h = task / blocks % g.heads, b = task / blocks / g.heads;
      int64_t kv = g.kv_head(h);
      Tile<T> t{{}, keys.all(b, kv), values.all(b, kv), b, h, i0, std::min(kQueries, g.tq - i0), 0, 0};
      t.q = queries.rows(b, h, i0, t.rows);
      std::fill_n(acc, t.rows * g.dv, T(0));
      std::fill_n(top, t.rows, -std::numeric_limits<T>::infinity());
      std::fill_n(sum, t.rows, T(0));
      int64_t last = g.seen_clamped(i0 + t.rows - 1);
      for (t.j0 = 0; t.j0 < last; t.j0 += kKeys) {
        t.cols = std::min(kKeys, last - t.j0);
        scores_of(g, t, scores);
        loops.forward(score_block(g, mask, t, scores), top, sum, acc, t.j0 ? g.dv : 0);
        gemm(false, false, t.rows, g.dv, t.cols, T(1), scores, kKeys, t.v.data + t.j0 * t.v.ld, t.v.ld,
             t.j0 ? T(1) : T(0), acc, g.dv);
      }
      loops.finish(t.rows, g.dv, top, sum, acc);
      store_rows(acc, g.dv, out, b, h, i0, t.rows);
      std::copy_n(sum, t.rows, lse.as<T>() + (b * g.heads + h) * g.tq + i0);
    }
  });
}

struct Gradients {
  const View &out, &lse, &dout, &dq, &dk, &dv;
};

// The gradients of one k/v head: all its q heads in order, so that the sums need no atomics.
template <class T>
class BackwardHead {
 public:
  BackwardHead(const View& q, const View& k, const View& v, const View* mask, const Geometry& g, const Gradients& grads)
      : mask_(mask),
        g_(g),
        grads_(grads),
        queries_(q, kQueries),
        keys_(k, g.tk),
        values_(v, g.tk),
        outs_(grads.out, kQueries),
        douts_(grads.dout, kQueries),
        dk_(grads.dk, g.tk),
        dv_(grads.dv, g.tk),
        memory_(kQueries * (2 * kKeys + 2 + g.d + 1)) {}

  void run(int64_t b, int64_t kv) {
    dk_to_ = dk_.begin(b, kv);
    dv_to_ = dv_.begin(b, kv);
    for (int64_t h = 0; h < g_.heads; ++h)
      for (int64_t i0 = 0; i0 < g_.tq && g_.kv_head(h) == kv; i0 += kQueries) queries(b, h, kv, i0);
    dk_.end();
    dv_.end();
  }

 private:
  void queries(int64_t b, int64_t h, int64_t kv, int64_t i0) {
    T *scores = memory_.data(), *dweights = scores + kQueries * (kKeys + 2), *dq = dweights + kQueries * kKeys,
      *delta = dq + kQueries * g_.d;
    Tile<T> t{{}, keys_.all(b, kv), values_.all(b, kv), b, h, i0, std::min(kQueries, g_.tq - i0), 0, 0};
    t.q = queries_.rows(b, h, i0, t.rows);
    Rows<T> out = outs_.rows(b, h, i0, t.rows), dout = douts_.rows(b, h, i0, t.rows);
    loops_.dots(t.rows, g_.dv, out.data, out.ld, dout.data, dout.ld, delta);
    std::fill_n(dq, t.rows * g_.d, T(0));
    const T* lse = grads_.lse.as<T>() + (b * g_.heads + h) * g_.tq + i0;
    int64_t last = g_.seen_clamped(i0 + t.rows - 1);
    for (t.j0 = 0; t.j0 < last; t.j0 += kKeys) {
      t.cols = std::min(kKeys, last - t.j0);
      scores_of(g_, t, scores);
      gemm(false, true, t.rows, t.cols, g_.dv, T(1), dout.data, dout.ld, t.v.data + t.j0 * t.v.ld, t.v.ld, T(0),
           dweights, kKeys);
      loops_.backward(score_block(g_, mask_, t, scores), lse, delta, static_cast<T>(g_.block.scale), dweights);
      gemm(true, false, t.cols, g_.dv, t.rows, T(1), scores, kKeys, dout.data, dout.ld, T(1),
           dv_to_.data + t.j0 * dv_to_.ld, dv_to_.ld);
      gemm(true, false, t.cols, g_.d, t.rows, T(1), dweights, kKeys, t.q.data, t.q.ld, T(1),
           dk_to_.data + t.j0 * dk_to_.ld, dk_to_.ld);
      gemm(false, false, t.rows, g_.d, t.cols, T(1), dweights, kKeys, t.k.data + t.j0 * t.k.ld, t.k.ld,
           t.j0 ? T(1) : T(0), dq, g_.d);
    }
    store_rows(dq, g_.d, grads_.dq, b, h, i0, t.rows);
  }

  const View* mask_;
  const Geometry& g_;
  const Gradients& grads_;
  const AttentionLoops<T>& loops_ = attention_loops(T{});
  Source<T> queries_, keys_, values_, outs_, douts_;
  Sum<T> dk_, dv_;
  MutableRows<T> dk_to_, dv_to_;
  Workspace<T, 5> memory_;
};

template <class T>
void backward(const View& q, const View& k, const View& v, const View* mask, const Geometry& g,
              const Gradients& grads) {
  parallel_for(g.batch * g.kv_heads, 1, [&](int64_t begin, int64_t end) {
    BackwardHead<T> head(q, k, v, mask, g, grads);
    for (int64_t task = begin; task < end; ++task) head.run(task / g.kv_heads, task % g.kv_heads);
  });
}

}  // namespace

void attention(const View& q, const View& k, const View& v, const View* mask, const AttentionBlock& block,
               const View& out, const View& lse) {
  Geometry g(q, k, v, block);
  if (q.dtype == DType::f64)
    forward<double>(q, k, v, mask, g, out, lse);
  else
    forward<float>(q, k, v, mask, g, out, lse);
}

void attention_backward(const View& q, const View& k, const View& v, const View* mask, const AttentionBlock& block,
                        const View& out, const View& lse, const View& dout, const View& dq, const View& dk,
                        const View& dv) {
  Geometry g(q, k, v, block);
  Gradients grads{out, lse, dout, dq, dk, dv};
  if (q.numel() == 0 || g.kv_heads == 0) fill(dq, 0.0);
  if (q.dtype == DType::f64)
    backward<double>(q, k, v, mask, g, grads);
  else
    backward<float>(q, k, v, mask, g, grads);
}

}  // namespace cleave::cpu
