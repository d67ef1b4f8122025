// Autocast: which op computes in what, casts of parameters made once, gradients in f32, the same under every layout.
#include <cleave/core/observer.h>
#include <cleave/ops/autocast.h>
#include <cleave/ops/observer.h>
#include <doctest/doctest.h>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

Tensor f32(const Shape& shape, uint64_t seed) { return randn(shape, {.dtype = DType::f32, .seed = seed}); }

}  // namespace

TEST_CASE("products run in 16 bits, sums and exponentials in f32, mixed ones in the widest, the rest as they come") {
  for (DType low : {DType::bf16, DType::f16}) {
    Autocast scope(low);
    Tensor x = f32({4, 6}, 1), w = f32({3, 6}, 2), h = cast(x, low);
    CHECK(matmul(x, transpose(w, 0, 1)).dtype() == low);
    CHECK(linear(x, w).dtype() == low);
    Tensor q = f32({2, 4, 6}, 4);
    CHECK(scaled_dot_product_attention(q, q, q).dtype() == low);
    CHECK(relu(h).dtype() == low);
    CHECK(relu(x).dtype() == DType::f32);
    for (const Tensor& y : {softmax(h, -1), exp(h), sum(h), mean(h), rms_norm(h, {6}), layer_norm(h, {6}, f32({6}, 3)),
                            h + x, cat({h, x}), cross_entropy(h, tensor<int64_t>({0, 1, 2, 3}))})
      CHECK(y.dtype() == DType::f32);
    CHECK((h + h).dtype() == low);
    Tensor d = cast(x, DType::f64);
    CHECK(matmul(d, transpose(d, 0, 1)).dtype() == DType::f64);
    CHECK(sum(tensor<int64_t>({1, 2})).dtype() == DType::i64);
    {
      Autocast off(std::nullopt);
      CHECK(linear(x, w).dtype() == DType::f32);
      CHECK(!autocast_dtype());
      Autocast other(DType::bf16);
      CHECK(linear(x, w).dtype() == DType::bf16);
    }
    CHECK(autocast_dtype() == low);
  }
  CHECK(!autocast_dtype());
  CHECK(message_of<DTypeError>([] { Autocast scope(DType::f32); }).find("bf16 or f16") != std::string::npos);
}

TEST_CASE("a product equals that of the rounded inputs, and gradients reach f32 weights in f32") {
  Tensor x = f32({4, 6}, 1), w = f32({3, 6}, 2).set_requires_grad();
  Tensor y;
  {
    Autocast scope(DType::bf16);
    y = linear(x, w);
    CHECK(equal(y, linear(cast(x, DType::bf16), cast(w.detach(), DType::bf16))));
    sum(square(y)).backward();  // in the scope
  }
  CHECK(w.grad().dtype() == DType::f32);
  Tensor inside = clone(w.grad()), v = w.detach();
  w.zero_grad();
  {
    Autocast scope(DType::bf16);
    y = sum(square(linear(x, w)));
  }
  y.backward();  // outside
  CHECK(equal(w.grad(), inside));
  Tensor h = cast(v, DType::bf16).set_requires_grad();
  sum(cast(square(linear(cast(x, DType::bf16), h)), DType::f32)).backward();
  CHECK(near(inside, h.grad(), 0.02));
}

namespace {

constexpr const char* kWeights[] = {"up", "up_bias", "norm", "q", "kv", "out", "down"};
const Shape kShapes[] = {{12, 6}, {12}, {12}, {4, 3, 12}, {2, 4, 3, 12}, {12, 4, 3}, {6, 12}};

// A block of a model and a loss. `automatic`: under autocast, else with the casts that the classes of its ops ask for
// written out. A weight that is used twice is cast once.
struct Program {
  DType low;
  bool automatic;
  Tensor to(const Tensor& x, DType dtype) const { return automatic ? x : cast(x, dtype); }
  Tensor product(const Tensor& x) const { return to(x, low); }
  Tensor exact(const Tensor& x) const { return to(x, DType::f32); }

  Tensor operator()(const Tensor& x, const std::vector<Tensor>& weights, const Tensor& target) const {
    std::optional<Autocast> scope;
    if (automatic) scope.emplace(low);
    std::vector<Tensor> w;
    for (const Tensor& each : weights) w.push_back(product(each));
    Tensor h = gelu(linear(product(x), w[0], w[1]));
    Tensor n = rms_norm(exact(h), {12}, weights[2]);
    std::vector<Tensor> kv = unbind(linear(product(n), w[4]), 2);
    Tensor a = scaled_dot_product_attention(transpose(linear(product(n), w[3]), 1, 2), transpose(kv[0], 1, 2),
                                            transpose(kv[1], 1, 2), {.is_causal = true});
    Tensor y = n + exact(linear(transpose(a, 1, 2), w[5], {}, {.in_dims = 2}));
    Tensor z = linear(product(y), w[6]) * 0.5;
    Tensor again = linear(z, w[0], w[1]);  // the second use
    return cross_entropy(exact(transpose(again, 1, 2)), target) + mean(exact(square(z))) +
           mean(softmax(exact(z), -1) * x);
  }
};

struct Outcome {
  Tensor loss;
  std::vector<Tensor> gradients;
};
// `layouts` of the weights in turn; no mesh: plain.
Outcome outcome(const Program& program, const dist::DeviceMesh* mesh, const std::vector<const char*>& layouts) {
  Tensor x = f32({4, 5, 6}, 1), target = randint(0, 12, {4, 5}, {.seed = 9});
  std::vector<Tensor> w;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    Tensor value = f32(kShapes[i], i + 2) * (kShapes[i].rank() > 1 ? 0.3 : 1.0);
    w.push_back(mesh ? weight(value, *mesh, layouts[i]) : weight(clone(value)));
  }
  if (mesh) {
    x = placed(x, *mesh, "dp, -, -");
    target = placed(target, *mesh, "dp, -");
  }
  Outcome out{program(x, w, target), {}};
  out.loss.backward();
  for (const Tensor& each : w) out.gradients.push_back(dist::full_tensor(each.grad()));
  out.loss = dist::full_tensor(out.loss).detach();
  return out;
}

double far(const Tensor& a, const Tensor& b) { return item<double>(amax(abs(a - b))) / item<double>(amax(abs(b))); }

}  // namespace

TEST_CASE("autocast is the casts that the ops' classes ask for, bit for bit, under every layout") {
  for (DType low : {DType::bf16, DType::f16}) {
    Outcome by_hand = outcome({low, false}, nullptr, {}), one = outcome({low, true}, nullptr, {});
    CHECK(one.loss.dtype() == DType::f32);
    CHECK(equal(one.loss, by_hand.loss));
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      CAPTURE(std::string(kWeights[i]));
      CHECK(one.gradients[i].dtype() == DType::f32);
      CHECK(equal(one.gradients[i], by_hand.gradients[i]));
    }
    const std::vector<const char*> plans[] = {
        {"-, -", "-", "-", "-, -, -", "-, -, -, -", "-, -, -", "-, -"},
        {"tp, -", "tp", "-", "tp, -, -", "-, tp, -, -", "-, tp, -", "-, tp"},
        {"-, tp", "-", "tp", "-, -, tp", "-, -, -, tp", "tp, -, -", "tp, -"},
        {"dp.tp, -", "dp", "dp", "dp, -, tp", "-, -, -, tp.dp", "dp, -, -", "dp, tp"}};
    double unit = low == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (const auto& plan : plans)
      on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
        CAPTURE(std::string(plan[0]));
        Outcome hand = outcome({low, false}, &mesh, plan), many = outcome({low, true}, &mesh, plan);
        CHECK(equal(many.loss, hand.loss));
        CHECK(far(many.loss, one.loss) < unit);
        for (size_t i = 0; i < many.gradients.size(); ++i) {
          CAPTURE(std::string(kWeights[i]));
          CHECK(many.gradients[i].dtype() == DType::f32);
          CHECK(equal(many.gradients[i], hand.gradients[i]));
          // Sums in another order, a few roundings deep.
          CHECK(far(many.gradients[i], one.gradients[i]) < 8 * unit);
        }
      });
  }
}

TEST_CASE("a parameter is cast once in a scope, and anew when it was written") {
  Tensor x = f32({4, 6}, 1), w = f32({6, 6}, 2).set_requires_grad();
  auto used = [&] {  // bytes that go on living: the cast, beyond the result
    int64_t before = memory_stats().active;
    Tensor y = linear(cast(x, DType::bf16), w);
    y = {};
    return memory_stats().active - before;
  };
  NoGrad off;
  Autocast scope(DType::bf16);
  CHECK(used() > 0);
  CHECK(used() == 0);
  Tensor before = linear(x, w);
  mul_(w, 2.0);
  CHECK(equal(linear(x, w), before * 2));
}

TEST_CASE("under every layout the same values, gradients and dtypes") {
  Tensor x0 = f32({4, 6}, 1), a0 = f32({5, 6}, 2), b0 = f32({6, 5}, 3);
  auto run = [](const Tensor& x, const Tensor& a, const Tensor& b) {
    Autocast scope(DType::bf16);
    Tensor y = softmax(linear(relu(linear(x, a)), b), -1);
    CHECK(y.dtype() == DType::f32);
    sum(y * x).backward();
    return y;
  };
  Tensor a1 = weight(clone(a0)), b1 = weight(clone(b0));
  Tensor want = run(x0, a1, b1).detach();
  for (const char* layouts : {"tp, -|-, tp", "-, tp|tp, -", "dp, -|dp.tp, -", "-, -|-, -"}) {
    std::string text = layouts, la = text.substr(0, text.find('|')), lb = text.substr(text.find('|') + 1);
    on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
      Tensor a = weight(a0, mesh, la.c_str()), b = weight(b0, mesh, lb.c_str());
      Tensor y = run(placed(x0, mesh, "dp, -"), a, b);
      CHECK(allclose(dist::full_tensor(y), want, {.rtol = 0.02, .atol = 0.02}));
      CHECK(allclose(dist::full_tensor(a.grad()), a1.grad(), {.rtol = 0.05, .atol = 0.05}));
      CHECK(allclose(dist::full_tensor(b.grad()), b1.grad(), {.rtol = 0.05, .atol = 0.05}));
      CHECK(a.grad().dtype() == DType::f32);
    });
  }
}
