// Attention in blocks of queries and keys, so that memory is linear in their number: forward with a running maximum and
// sum, backward from the stored log-sum-exp.
#include <cleave/core/cpu/attention.h>
#include <cleave/core/cpu/attention_parts.h>

#include <utility>

namespace cleave::cpu {
namespace {

// The queries of one block against a block of keys of one head.
struct Tile {
  int64_t b, h, i0, rows, j0, cols;
};

// `scores` has 2 * kQueries elements more, for the loops.
template <class T>
ScoreBlock<T> score_block(const Geometry& g, const View* mask, const Tile& t, T* scores) {
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

// The products of a tile; those with scores leave out what no query sees.
template <class T>
struct TileProducts {
  const SmallProductLoops<T>& loops;
  const Geometry& g;
  const Tile& t;

  void run(SmallProduct<T> p, Triangle triangle) const {
    if (g.block.causal) p.triangle = triangle;
    p.seen = g.seen(t.i0) - t.j0;
    loops.run(p);
  }
  // scores = scale * x y^T, for y turned.
  void scores(const Rows<T>& x, const T* y, int64_t depth, T scale, T* to) const {
    run({t.rows, t.cols, depth, scale, x.data, x.ld, 1, y, kKeys, to, kKeys, false}, Triangle::result);
  }
  // to (+)= scores y, one row for each query.
  void to_queries(const T* scores, const Rows<T>& y, int64_t width, T* to, bool add) const {
    run({t.rows, width, t.cols, 1, scores, kKeys, 1, y.data, y.ld, to, padded(width), add}, Triangle::left);
  }
  // to (+)= scores^T x, one row for each key.
  void to_keys(const T* scores, const Rows<T>& x, int64_t width, const MutableRows<T>& to, bool add) const {
    run({t.cols, width, t.rows, 1, scores, 1, kKeys, x.data, x.ld, to.data + t.j0 * to.ld, to.ld, add},
        Triangle::turned);
  }
};

template <class T>
void forward(const View& q, const View& k, const View& v, const View* mask, const Geometry& g, const View& out,
             const View& lse) {
  int64_t blocks = (g.tq + kQueries - 1) / kQueries, ld = padded(g.dv);
  const AttentionLoops<T>& loops = attention_loops(T{});
  parallel_for(g.batch * g.heads * blocks, g.grain(), [&](int64_t begin, int64_t end) {
    Source<T> queries(q, kQueries);
    Keys<T> keys(k, true), values(v, false);
    Workspace<T, 5> memory(kQueries * (kKeys + 2 + ld + 2));
    T *scores = memory.data(), *acc = scores + kQueries * (kKeys + 2), *top = acc + kQueries * ld,
      *sum = top + kQueries;
    for (int64_t task = begin; task < end; ++task) {
      int64_t i0 = task % blocks * kQueries, h = task / blocks % g.heads, b = task / blocks / g.heads;
      Tile t{b, h, i0, std::min(kQueries, g.tq - i0), 0, 0};
      TileProducts<T> products{small_products(T{}), g, t};
      Rows<T> rows = queries.rows(b, h, i0, t.rows);
      keys.use(b, g.kv_head(h));
      values.use(b, g.kv_head(h));
      std::fill_n(top, t.rows, -std::numeric_limits<T>::infinity());
      std::fill_n(sum, t.rows, T(0));
      int64_t last = g.seen_clamped(i0 + t.rows - 1);
      if (last == 0) std::fill_n(acc, t.rows * ld, T(0));
      for (t.j0 = 0; t.j0 < last; t.j0 += kKeys) {
        t.cols = std::min(kKeys, last - t.j0);
        products.scores(rows, keys.turned(t.j0), g.d, static_cast<T>(g.block.scale), scores);
        loops.forward(score_block(g, mask, t, scores), top, sum, acc, t.j0 ? ld : 0);
        products.to_queries(scores, values.rows(t.j0), g.dv, acc, t.j0 > 0);
      }
      loops.finish(t.rows, ld, top, sum, acc);
      store_rows(acc, ld, out, b, h, i0, t.rows);
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
        outs_(grads.out, kQueries),
        douts_(grads.dout, kQueries),
        keys_(k, true),
        values_(v, true),
        dk_(grads.dk, g.tk),
        dv_(grads.dv, g.tk),
        memory_(kQueries * (2 * kKeys + 2 + padded(g.d) + 1)) {}

  void run(int64_t b, int64_t kv) {
    keys_.use(b, kv);
    values_.use(b, kv);
    dk_to_ = dk_.begin(b, kv);
    dv_to_ = dv_.begin(b, kv);
    // The last queries first: they see all keys that any do, so that sums begin with them and not with zeros.
    bool add = false;
    for (int64_t h = 0; h < g_.heads; ++h)
      for (int64_t i0 = (g_.tq - 1) / kQueries * kQueries; i0 >= 0 && g_.tq > 0 && g_.kv_head(h) == kv; i0 -= kQueries)
        queries(b, h, i0, std::exchange(add, true));
    if (!add) zero_keys(0);
    dk_.end();
    dv_.end();
  }

 private:
  void zero_keys(int64_t first) {
    for (int64_t j = first; j < g_.tk; ++j) {
      std::fill_n(dk_to_.data + j * dk_to_.ld, g_.d, T(0));
      std::fill_n(dv_to_.data + j * dv_to_.ld, g_.dv, T(0));
    }
  }

  void queries(int64_t b, int64_t h, int64_t i0, bool add) {
    T *scores = memory_.data(), *dweights = scores + kQueries * (kKeys + 2), *dq = dweights + kQueries * kKeys,
      *delta = dq + kQueries * padded(g_.d);
    Tile t{b, h, i0, std::min(kQueries, g_.tq - i0), 0, 0};
    TileProducts<T> products{small_products(T{}), g_, t};
    Rows<T> q = queries_.rows(b, h, i0, t.rows), out = outs_.rows(b, h, i0, t.rows),
            dout = douts_.rows(b, h, i0, t.rows);
    loops_.dots(t.rows, g_.dv, out.data, out.ld, dout.data, dout.ld, delta);
    T scale = static_cast<T>(g_.block.scale);
    const T* lse = grads_.lse.as<T>() + (b * g_.heads + h) * g_.tq + i0;
    int64_t last = g_.seen_clamped(i0 + t.rows - 1);
    if (last == 0) std::fill_n(dq, t.rows * padded(g_.d), T(0));
    if (!add) zero_keys(last);
    for (t.j0 = 0; t.j0 < last; t.j0 += kKeys) {
      t.cols = std::min(kKeys, last - t.j0);
      products.scores(q, keys_.turned(t.j0), g_.d, scale, scores);
      products.scores(dout, values_.turned(t.j0), g_.dv, T(1), dweights);
      loops_.backward(score_block(g_, mask_, t, scores), lse, delta, scale, dweights);
      products.to_keys(scores, dout, g_.dv, dv_to_, add);
      products.to_keys(dweights, q, g_.d, dk_to_, add);
      products.to_queries(dweights, keys_.rows(t.j0), g_.d, dq, t.j0 > 0);
    }
    store_rows(dq, padded(g_.d), grads_.dq, b, h, i0, t.rows);
  }

  const View* mask_;
  const Geometry& g_;
  const Gradients& grads_;
  const AttentionLoops<T>& loops_ = attention_loops(T{});
  Source<T> queries_, outs_, douts_;
  Keys<T> keys_, values_;
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
