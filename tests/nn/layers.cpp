// Layers against plain formulas, and attention under tensor parallelism against one device.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Net : nn::Module<Net> {
  nn::Linear flat{this, "flat", 4, 6}, fused{this, "fused", {4}, {3, 2, 5}},
      back{this, "back", {2, 5}, {4}, {.bias = false}};
  nn::Embedding rows{this, "rows", 9, 4, {.std = 0.02}};
  nn::LayerNorm norm{this, "norm", 4}, bare{this, "bare", {2, 4}, {.affine = false}},
      unbiased{this, "unbiased", 4, {.bias = false}};
  nn::RMSNorm rms{this, "rms", 4};
  nn::Dropout drop{this, "drop", 0.25};
  Tensor forward(const Tensor& x) const { return x; }
};

Tensor x0() { return normal(1, {3, 2, 4}); }

}  // namespace

TEST_CASE("linear contracts the input's dims, however many the output has") {
  auto net = nn::build<Net>({.dtype = DType::f64});
  Tensor x = x0();
  CHECK(distance(net.flat(x), matmul(x, transpose(net.flat.weight, 0, 1)) + *net.flat.bias) < 1e-14);
  CHECK(net.fused.weight.shape() == Shape{3, 2, 5, 4});
  CHECK(net.fused.bias->shape() == Shape{3, 2, 5});
  Tensor wide = net.fused(x);
  CHECK(wide.shape() == Shape{3, 2, 3, 2, 5});
  Tensor w = reshape(net.fused.weight, {30, 4});
  CHECK(distance(reshape(wide, {3, 2, 30}), matmul(x, transpose(w, 0, 1)) + reshape(*net.fused.bias, {30})) < 1e-14);
  Tensor heads = select(wide, 2, 1);
  CHECK(net.back(heads).shape() == Shape{3, 2, 4});
  CHECK(distance(net.back(heads),
                 matmul(reshape(heads, {3, 2, 10}), transpose(reshape(net.back.weight, {4, 10}), 0, 1))) < 1e-14);
  CHECK(!net.back.bias);
}

TEST_CASE("embedding, norms and dropout") {
  seed(1);
  auto net = nn::build<Net>({.dtype = DType::f64});
  Tensor ids = tensor<int64_t>({8, 0, 8});
  CHECK(equal(select(net.rows(ids), 0, 2), select(net.rows.weight, 0, 8)));
  CHECK(item<double>(amax(abs(net.rows.weight))) < 0.1);
  Tensor x = x0();
  Tensor centred = x - mean(x, -1, true);
  net.norm.weight->assign(normal(2, {4}));
  net.norm.bias->assign(normal(3, {4}));
  Tensor want = centred * rsqrt(mean(square(centred), -1, true) + 1e-5) * *net.norm.weight + *net.norm.bias;
  CHECK(distance(net.norm(x), want) < 1e-13);
  Tensor both = x - mean(x, {-2, -1}, true);
  CHECK(distance(net.bare(x), both * rsqrt(mean(square(both), {-2, -1}, true) + 1e-5)) < 1e-13);
  CHECK(!net.bare.weight);
  CHECK(net.unbiased.weight);
  CHECK(!net.unbiased.bias);
  CHECK(distance(net.rms(x), x * rsqrt(mean(square(x), -1, true) + 1e-6)) < 1e-13);
  Tensor many = ones({4000}, {.dtype = DType::f64}), dropped = net.drop(many);
  CHECK(item<double>(mean(dropped)) == doctest::Approx(1).epsilon(0.05));
  CHECK(item<double>(amax(dropped)) == doctest::Approx(1 / 0.75));
  net.eval();
  CHECK(equal(net.drop(many), many));
  check_throws<ValueError>([&] { nn::Dropout bad(&net, "bad", 1.5); }, {"bad", "1.5"});
}

namespace {

struct Attention : nn::Module<Attention> {
  nn::MultiHeadAttention a;
  explicit Attention(const nn::MultiHeadAttentionOptions& o) : a(this, "a", 12, o) {}
  Tensor forward(const Tensor& x) const { return a(x); }
};

nn::MultiHeadAttentionOptions options(int64_t heads, int64_t kv) {
  return {.heads = heads, .kv_heads = kv, .head_dim = 4, .causal = true, .dropout = 0.2, .rope = RopeOptions{}};
}

}  // namespace

TEST_CASE("attention by hand, head by head") {
  Attention net({.heads = 3, .head_dim = 4, .bias = false});
  Tensor x = normal(1, {2, 5, 12}, DType::f32);
  Tensor want;
  for (int64_t h = 0; h < 3; ++h) {
    auto project = [&](int64_t part) {
      return matmul(x, transpose(select(select(net.a.qkv->weight, 0, part), 0, h), 0, 1));
    };
    Tensor w = softmax(matmul(project(0), transpose(project(1), 1, 2)) * 0.5, -1);
    Tensor y = matmul(matmul(w, project(2)), transpose(select(net.a.out.weight, 1, h), 0, 1));
    want = want.defined() ? want + y : y;
  }
  CHECK(distance(net(x), want) < 1e-5);
}

TEST_CASE("grouped heads read the group's key and value") {
  auto net = nn::build<Attention>({.dtype = DType::f64},
                                  nn::MultiHeadAttentionOptions{.heads = 4, .kv_heads = 2, .head_dim = 4});
  auto full = nn::build<Attention>({.dtype = DType::f64}, nn::MultiHeadAttentionOptions{.heads = 4, .head_dim = 4});
  Tensor kv = net.a.kv->weight, bias = *net.a.kv->bias;
  auto spread = [](const Tensor& t) { return index_select(t, 1, tensor<int64_t>({0, 0, 1, 1})); };
  full.a.qkv->weight.assign(cat({unsqueeze(net.a.q->weight, 0), spread(kv)}, 0));
  full.a.qkv->bias->assign(cat({unsqueeze(*net.a.q->bias, 0), spread(bias)}, 0));
  full.a.out.weight.assign(net.a.out.weight);
  full.a.out.bias->assign(*net.a.out.bias);
  Tensor x = normal(1, {2, 5, 12});
  CHECK(distance(net(x), full(x)) < 1e-12);
  check_throws<ValueError>([] { Attention bad({.heads = 3, .kv_heads = 2}); }, {"3 heads", "2 key"});
  check_throws<ValueError>([] { Attention bad({.heads = 5}); }, {"dim 12", "5 heads", "head_dim"});
}

TEST_CASE("attention split by heads equals one device, uneven groups and dropout included") {
  Tensor x = normal(1, {3, 7, 12});
  struct Case {
    int64_t heads, kv;
  };
  for (Case c : {Case{4, 4}, Case{5, 5}, Case{5, 1}, Case{6, 2}, Case{6, 3}}) {
    auto one = [&] {
      seed(2);
      return nn::build<Attention>({.dtype = DType::f64}, options(c.heads, c.kv));
    };
    auto single = one();
    seed(3);
    Tensor want = single(x);
    sum(square(want)).backward();
    on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
      CAPTURE(c.heads);
      CAPTURE(c.kv);
      dist::DeviceMesh mesh = grid(world, world.size() < 4);
      auto many = one();
      nn::ShardingPlan plan{.parameter = {{"a.out.weight", "-, tp, -"}},
                            .forward = {{"input", {"dp, -, -"}}, {"output", {"dp, -, -"}}}};
      if (c.heads == c.kv)
        plan.parameter.insert(plan.parameter.end(), {{"a.qkv.weight", "-, tp, -, -"}, {"a.qkv.bias", "-, tp, -"}});
      else
        plan.parameter.insert(plan.parameter.end(), {{"a.q.weight", "tp, -, -"}, {"a.q.bias", "tp, -"}});
      nn::shard(many, mesh, plan);
      seed(3);
      Tensor y = many(dist::replicate(x, mesh));
      CHECK(distance(y, want) < 1e-12);
      sum(square(y)).backward();
      auto a = many.parameters(), b = single.parameters();
      for (size_t i = 0; i < a.size(); ++i) CHECK(distance(a[i].grad(), b[i].grad()) < 1e-11);
    });
  }
}
