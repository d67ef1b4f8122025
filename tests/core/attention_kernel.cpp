// Blocked attention against plain loops in double, and its gradients against differences.
#include <cleave/core/cpu/attention.h>
#include <cleave/core/parallel.h>
#include <cleave/core/random.h>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <memory>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t b, h, hkv, tq, tk, d, dv;
};

enum class Mask { none, boolean, additive, row };

// The tensors of one attention; `fill` gives q, k, v and dout numbers.
struct Problem {
  Problem(DType t, const Sizes& s, Lie lie = Lie::dense)
      : sizes(s),
        q(t, {s.b, s.h, s.tq, s.d}, lie),
        k(t, {s.b, s.hkv, s.tk, s.d}, lie),
        v(t, {s.b, s.hkv, s.tk, s.dv}, lie),
        out(t, {s.b, s.h, s.tq, s.dv}, lie),
        dout(t, {s.b, s.h, s.tq, s.dv}, lie),
        lse(t == DType::f64 ? t : DType::f32, {s.b, s.h, s.tq}),
        dq(t, {s.b, s.h, s.tq, s.d}),
        dk(t, {s.b, s.hkv, s.tk, s.d}),
        dv(t, {s.b, s.hkv, s.tk, s.dv}) {
    set_all(q.view, [](int64_t i) { return 2 * noise(i); });
    set_all(k.view, [](int64_t i) { return 2 * noise(i + 100'000); });
    set_all(v.view, [](int64_t i) { return noise(i + 200'000); });
    set_all(dout.view, [](int64_t i) { return noise(i + 300'000); });
    block.scale = 1 / std::sqrt(double(std::max<int64_t>(1, s.d)));
    block.group = std::max<int64_t>(1, s.h / std::max<int64_t>(1, s.hkv));
  }

  void use_mask(Mask kind) {
    if (kind == Mask::none) return;
    Shape full{sizes.b, sizes.h, sizes.tq, sizes.tk};
    if (kind == Mask::row) full = {1, sizes.h, sizes.tq, sizes.tk};
    mask = std::make_unique<Data>(kind == Mask::additive ? q.view.dtype : DType::boolean, full);
    set_all(mask->view, [&](int64_t i) {
      if (kind == Mask::additive) return i % 7 == 0 ? -kInf : noise(i);
      return double(i % 3 != 0 && i / sizes.tk % 5 != 1);  // some rows see nothing
    });
    if (kind != Mask::row) return;
    mask->view.strides[1] = 0;
  }

  void run() { cpu::attention(q.view, k.view, v.view, mask_view(), block, out.view, lse.view); }
  void run_backward() {
    cpu::attention_backward(q.view, k.view, v.view, mask_view(), block, out.view, lse.view, dout.view, dq.view, dk.view,
                            dv.view);
  }
  const View* mask_view() const { return mask ? &mask->view : nullptr; }

  // 0 if the weight is dropped, else its factor.
  double keep(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (block.dropout == 0) return 1;
    int64_t heads = block.heads ? block.heads : sizes.h, queries = block.queries ? block.queries : sizes.tq;
    auto index = static_cast<uint64_t>(
        (((block.first_batch + b) * heads + block.first_q_head + h) * queries + block.first_query + i) * sizes.tk + j);
    uint32_t word = detail::philox({block.seed, block.call}, index / 4).v[index % 4];
    return double(word) * 0x1p-32 < block.dropout ? 0 : 1 / (1 - block.dropout);
  }

  double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    int64_t queries = block.queries ? block.queries : sizes.tq;
    if (block.causal && j > block.first_query + i + sizes.tk - queries) return -kInf;
    int64_t kv = (block.first_q_head + h) / block.group - block.first_kv_head;
    double sum = 0;
    for (int64_t p = 0; p < sizes.d; ++p)
      sum += get(q.view, ((b * sizes.h + h) * sizes.tq + i) * sizes.d + p) *
             get(k.view, ((b * sizes.hkv + kv) * sizes.tk + j) * sizes.d + p);
    sum *= block.scale;
    if (!mask) return sum;
    int64_t at = (((mask->view.shape[0] == 1 ? 0 : b) * sizes.h + h) * sizes.tq + i) * sizes.tk + j;
    double m = get(mask->view, at);
    return mask->view.dtype == DType::boolean ? (m != 0 ? sum : -kInf) : sum + m;
  }

  // Compares out and lse with the plain definition; returns the number of wrong elements.
  int64_t count_wrong(double tolerance) const {
    int64_t wrong = 0;
    for (int64_t row = 0; row < sizes.b * sizes.h * sizes.tq; ++row) {
      int64_t i = row % sizes.tq, h = row / sizes.tq % sizes.h, b = row / sizes.tq / sizes.h;
      int64_t kv = (block.first_q_head + h) / block.group - block.first_kv_head;
      std::vector<double> w(size_t(sizes.tk));
      double sum = 0;
      for (int64_t j = 0; j < sizes.tk; ++j) sum += w[size_t(j)] = std::exp(score(b, h, i, j));
      wrong += !close(get(lse.view, row), std::log(sum), tolerance, tolerance);
      for (int64_t c = 0; c < sizes.dv; ++c) {
        double want = 0;
        for (int64_t j = 0; j < sizes.tk && sum > 0; ++j)
          want +=
              w[size_t(j)] / sum * keep(b, h, i, j) * get(v.view, ((b * sizes.hkv + kv) * sizes.tk + j) * sizes.dv + c);
        wrong += !close(get(out.view, row * sizes.dv + c), want, tolerance, tolerance);
      }
    }
    return wrong;
  }

  Sizes sizes;
  cpu::AttentionBlock block;
  Data q, k, v, out, dout, lse, dq, dk, dv;
  std::unique_ptr<Data> mask;
};

double tolerance(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 5e-6 : 4 * epsilon(t); }

// Every 1st, 8th, 15th ... element of x, by central differences.
void check_gradient(Problem& p, const View& x, const View& dx, int64_t every = 7) {
  auto f = [&] {
    p.run();
    double sum = 0;
    for (int64_t i = 0; i < p.out.view.numel(); ++i) sum += get(p.out.view, i) * get(p.dout.view, i);
    return sum;
  };
  for (int64_t i = 0; i < x.numel(); i += every) {
    double was = get(x, i), h = 1e-5;
    set(x, i, was + h);
    double up = f();
    set(x, i, was - h);
    double down = f();
    set(x, i, was);
    CHECK(get(dx, i) == doctest::Approx((up - down) / (2 * h)).epsilon(1e-7).scale(1));
  }
}

void check_gradients(Problem& p, int64_t every = 7) {
  p.run();
  p.run_backward();
  check_gradient(p, p.q.view, p.dq.view, every);
  check_gradient(p, p.k.view, p.dk.view, every);
  check_gradient(p, p.v.view, p.dv.view, every);
}

}  // namespace

TEST_CASE("attention: dtypes, layouts, masks and odd sizes") {
  const Sizes sizes[] = {{2, 2, 2, 5, 5, 8, 8},     {1, 4, 2, 65, 130, 5, 3},  {1, 1, 1, 1, 1, 1, 1},
                         {1, 2, 1, 70, 33, 64, 32}, {1, 1, 1, 3, 300, 16, 16}, {2, 3, 3, 129, 257, 4, 7}};
  for (DType t : kFloats)
    for (const Sizes& s : sizes)
      for (Lie lie : {Lie::dense, Lie::reversed, Lie::gaps})
        for (bool causal : {false, true})
          for (Mask mask : {Mask::none, Mask::boolean, Mask::additive, Mask::row}) {
            if (s.tq * s.tk > 2000 && lie != Lie::dense && (is_half(t) || mask != Mask::boolean)) continue;
            Problem p(t, s, lie);
            p.block.causal = causal;
            p.use_mask(mask);
            p.run();
            CAPTURE(std::string(to_string(t)));
            CAPTURE(s.tq);
            CAPTURE(s.tk);
            CAPTURE(causal);
            CAPTURE(int(mask));
            CHECK(p.count_wrong(tolerance(t)) == 0);
          }
}

TEST_CASE("attention: gradients against differences") {
  for (bool causal : {false, true})
    for (Mask mask : {Mask::none, Mask::boolean, Mask::additive})
      for (double dropout : {0.0, 0.3}) {
        Problem p(DType::f64, {2, 4, 2, 5, 7, 3, 4}, Lie::reversed);
        p.block.causal = causal;
        p.block.dropout = dropout;
        p.block.seed = 5;
        p.block.call = 3;
        p.use_mask(mask);
        check_gradients(p, 1);
      }
  Problem p(DType::f64, {1, 2, 1, 70, 140, 3, 2});  // more than one block each way
  p.block.causal = true;
  check_gradients(p, 41);
}

TEST_CASE("attention: gradients in the other dtypes equal those in f64") {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (Lie lie : {Lie::dense, Lie::gaps})
      for (double dropout : {0.0, 0.2}) {
        Sizes s{2, 4, 2, 80, 150, 16, 8};
        Problem p(t, s, lie), wide(DType::f64, s);
        for (auto [from, to] : {std::pair{&p.q, &wide.q}, {&p.k, &wide.k}, {&p.v, &wide.v}, {&p.dout, &wide.dout}})
          set_all(to->view, [&](int64_t i) { return get(from->view, i); });
        for (Problem* x : {&p, &wide}) {
          x->block.causal = true;
          x->block.dropout = dropout;
          x->run();
          x->run_backward();
        }
        for (auto [a, b] : {std::pair{&p.dq, &wide.dq}, {&p.dk, &wide.dk}, {&p.dv, &wide.dv}}) {
          int64_t wrong = 0;
          for (int64_t i = 0; i < a->view.numel(); ++i)
            wrong += !close(get(a->view, i), get(b->view, i), 4 * epsilon(t), t == DType::f32 ? 2e-5 : 8 * epsilon(t));
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("attention: a block of heads and queries gives its part of the whole") {
  Sizes s{2, 6, 3, 40, 50, 8, 8};
  for (double dropout : {0.0, 0.25}) {
    Problem whole(DType::f64, s);
    whole.block.causal = true;
    whole.block.dropout = dropout;
    whole.block.seed = 11;
    whole.run();
    CHECK(whole.count_wrong(1e-12) == 0);
    // Heads 3 to 5 of batch 1, queries 17 to 39; k and v whole, so kv head 1 is read by local head 0 alone.
    Problem part(DType::f64, {1, 3, 3, 23, 50, 8, 8});
    part.block = whole.block;
    part.block.first_batch = 1;
    part.block.first_q_head = 3;
    part.block.first_query = 17;
    part.block.queries = 40;
    part.block.heads = 6;
    set_all(part.q.view, [&](int64_t i) {
      int64_t c = i % 8, t = i / 8 % 23 + 17, h = i / 8 / 23 + 3;
      return get(whole.q.view, ((6 + h) * 40 + t) * 8 + c);
    });
    for (auto [from, to] : {std::pair{&whole.k, &part.k}, {&whole.v, &part.v}})
      set_all(to->view, [&](int64_t i) { return get(from->view, i + 3 * 50 * 8); });
    part.run();
    CHECK(part.count_wrong(1e-12) == 0);
    for (int64_t i = 0; i < part.out.view.numel(); ++i) {
      int64_t c = i % 8, t = i / 8 % 23 + 17, h = i / 8 / 23 + 3;
      CHECK(get(part.out.view, i) == doctest::Approx(get(whole.out.view, ((6 + h) * 40 + t) * 8 + c)).epsilon(1e-13));
    }
    check_gradients(part, 37);
    for (int64_t i = 0; i < 50 * 8; ++i) CHECK(get(part.dk.view, i) == 0);  // kv head 0 is read by nobody here
  }
}

TEST_CASE("attention: dropped weights are those of the key, whatever the blocks") {
  Problem p(DType::f32, {1, 2, 2, 66, 131, 4, 4});
  p.block.dropout = 0.5;
  p.block.seed = 99;
  p.block.call = 1234567890123;
  p.run();
  CHECK(p.count_wrong(1e-5) == 0);
  p.block.dropout = 1;
  p.run();
  p.run_backward();
  for (const Data* x : {&p.out, &p.dq, &p.dk, &p.dv})
    for (int64_t i = 0; i < x->view.numel(); ++i) CHECK(get(x->view, i) == 0);
}

TEST_CASE("attention: empty sizes, and queries that see nothing") {
  for (const Sizes& s : {Sizes{0, 2, 2, 3, 3, 4, 4}, Sizes{1, 2, 2, 0, 3, 4, 4}, Sizes{1, 2, 2, 3, 0, 4, 4},
                         Sizes{1, 0, 0, 3, 3, 4, 4}, Sizes{1, 2, 2, 3, 4, 0, 4}, Sizes{1, 2, 2, 3, 4, 4, 0}}) {
    Problem p(DType::f32, s);
    p.run();
    p.run_backward();
    CHECK(p.count_wrong(1e-6) == 0);
    for (const Data* x : {&p.dq, &p.dk})
      for (int64_t i = 0; i < x->view.numel(); ++i) CHECK_FALSE(std::isnan(get(x->view, i)));
  }
  Problem p(DType::f32, {1, 1, 1, 6, 4, 2, 2});  // causal with fewer keys than queries: the first two see nothing
  p.block.causal = true;
  p.run();
  p.run_backward();
  CHECK(p.count_wrong(1e-6) == 0);
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(get(p.out.view, i) == 0);
    CHECK(get(p.dq.view, i) == 0);
  }
  CHECK(get(p.lse.view, 1) == -kInf);
}

TEST_CASE("attention: NaN in a query or a seen key shows, infinite scores do not hide it") {
  Problem p(DType::f32, {1, 1, 1, 5, 5, 2, 2});
  p.block.causal = true;
  set(p.q.view, 2 * 2, std::nan(""));
  p.run();
  CHECK(std::isnan(get(p.out.view, 2 * 2)));
  CHECK_FALSE(std::isnan(get(p.out.view, 1 * 2)));
  CHECK_FALSE(std::isnan(get(p.out.view, 3 * 2)));
}

TEST_CASE("attention: the same bits for any number of threads") {
  int before = num_threads();
  std::vector<unsigned char> out, dk;
  for (int threads : {1, 2}) {
    set_num_threads(threads);
    Problem p(DType::f32, {2, 4, 2, 100, 100, 16, 16});
    p.block.causal = true;
    p.run();
    p.run_backward();
    if (out.empty()) out = p.out.bytes, dk = p.dk.bytes;
    CHECK(out == p.out.bytes);
    CHECK(dk == p.dk.bytes);
  }
  set_num_threads(before);
}
