// Backward on one device: accumulation, retained graphs, hooks, versions, long chains.
#include <cleave/cleave.h>
#include <doctest/doctest.h>

using namespace cleave;

namespace {
Tensor leaf(std::vector<double> values, const Shape& shape) {
  return tensor<double>(values, shape).set_requires_grad();
}
}  // namespace

TEST_CASE("gradients add up over consumers and over calls") {
  Tensor x = leaf({1, -2, 3}, {3});
  Tensor y = x * x + x * 3.0 + x;  // 2x + 4
  sum(y).backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{6, 0, 10});
  sum(x * 2.0).backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{8, 2, 12});
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a gradient handed out is not written by the next backward's bucket, and detached ones do not alias leaves") {
  Tensor x = leaf({1, 2}, {2}), w = leaf({3, 4}, {2});
  sum(x * w).backward();
  Tensor first = x.grad();
  CHECK(first.storage() != w.storage());
  CHECK(to_vector<double>(w) == std::vector<double>{3, 4});
  sum(x * w).backward();
  CHECK(to_vector<double>(w) == std::vector<double>{3, 4});
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{6, 8});
}

TEST_CASE("the same cotangent for two inputs is not added to twice") {
  Tensor a = leaf({1, 2}, {2}), b = leaf({5, 7}, {2});
  Tensor s = a + b, t = s + a;  // a twice, b once
  sum(t * 3.0).backward();
  CHECK(to_vector<double>(a.grad()) == std::vector<double>{6, 6});
  CHECK(to_vector<double>(b.grad()) == std::vector<double>{3, 3});
}

TEST_CASE("backward frees the graph unless asked to retain it") {
  Tensor x = leaf({2}, {1});
  Tensor y = sum(x * x);
  y.backward({.retain_graph = true});
  y.backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{8});
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("retain_graph"), GradError);
}

TEST_CASE("a cotangent of another shape or dtype, and a tensor without a tape, are refused") {
  Tensor x = leaf({1, 2}, {2});
  Tensor y = x * 2.0;
  CHECK_THROWS_AS(y.backward(), GradError);
  CHECK_THROWS_AS(y.backward(ones({3}, {.dtype = DType::f64})), ShapeError);
  CHECK_THROWS_AS(y.backward(ones({2})), DTypeError);
  y.backward(tensor<double>({1, -1}, {2}));
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{2, -2});
  CHECK_THROWS_AS(ones({}).backward(), GradError);
  CHECK_THROWS_AS(ones({2}, {.dtype = DType::i64}).set_requires_grad(), GradError);
  CHECK_THROWS_AS(y.set_requires_grad(), GradError);
}

TEST_CASE("an in-place write to a saved tensor is found, one to a tensor that nobody saved is not an error") {
  Tensor x = leaf({1, 2}, {2}), c = tensor<double>({3, 4}, {2});
  Tensor y = sum(x * c);
  fill_(c, 0.0);
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("in place"), GradError);
  Tensor z = sum(x + c);
  fill_(c, 1.0);
  z.backward();
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{1, 1});
  CHECK_THROWS_AS(fill_(x, 0.0), GradError);
  NoGrad off;
  fill_(x, 0.0);
  CHECK(to_vector<double>(x) == std::vector<double>{0, 0});
}

TEST_CASE("an error in the middle of backward leaves nothing behind") {
  Tensor x = leaf({1, 2}, {2}), c = tensor<double>({3, 4}, {2});
  Tensor a = x * c, y = sum(a * 2.0);
  fill_(c, 5.0);
  CHECK_THROWS_AS(y.backward({.retain_graph = true}), GradError);
  CHECK_THROWS_AS(y.backward({.retain_graph = true}), GradError);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("hooks run once per sync, in order, and may replace the gradient") {
  Tensor x = leaf({1, 2}, {2});
  std::vector<int> calls;
  x.add_hook([&](const Tensor& g) {
    calls.push_back(1);
    return g * 10.0;
  });
  x.add_hook([&](const Tensor& g) {
    calls.push_back(2);
    CHECK(to_vector<double>(g) == std::vector<double>{20, 20});
    return Tensor();
  });
  sum(x + x).backward();
  CHECK(calls == std::vector<int>{1, 2});
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{20, 20});
  CHECK_THROWS_AS((x * 2.0).add_hook([](const Tensor&) { return Tensor(); }), GradError);
}

TEST_CASE("micro-batches keep their terms until the sync") {
  Tensor x = leaf({1, 2}, {2});
  sum(x).backward({.sync = false});
  CHECK_THROWS_WITH_AS(x.grad(), doctest::Contains("sync_gradients"), GradError);
  sum(x * 2.0).backward({.sync = false});
  sync_gradients({x});
  CHECK(to_vector<double>(x.grad()) == std::vector<double>{3, 3});
}

TEST_CASE("a chain of 200,000 nodes runs and is taken apart without recursion") {
  Tensor x = leaf({1}, {1});
  {
    Tensor y = x;
    for (int i = 0; i < 200000; ++i) y = y + 0.0;
    sum(y).backward();
    CHECK(to_vector<double>(x.grad()) == std::vector<double>{1});
  }
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y + 0.0;
}

TEST_CASE("gradients of bf16 leaves add up in f32") {
  Tensor x = cast(tensor<double>({1, 2}, {2}), DType::bf16);
  x.set_requires_grad();
  for (int i = 0; i < 3; ++i) sum(cast(x, DType::f32) * (i == 0 ? 256.0 : 0.5)).backward({.sync = false});
  sync_gradients({x});
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(to_vector<float>(x.grad()) == std::vector<float>{257, 257});  // bf16 would have stayed at 256
}

TEST_CASE("meta tensors infer, also backward") {
  Tensor w = empty({3, 4}, {.device = Device::Meta});
  w.set_requires_grad();
  Tensor y = gelu(matmul(empty({2, 3}, {.device = Device::Meta}), w));
  CHECK(y.shape() == Shape{2, 4});
  sum(y).backward();
  CHECK(w.grad().shape() == Shape{3, 4});
}

TEST_CASE("an op may have any number of inputs") {
  std::vector<Tensor> parts;
  for (int i = 0; i < 100; ++i) parts.push_back(leaf({double(i)}, {1}));
  Tensor y = sum(square(cat(parts)));
  y.backward();
  for (int i = 0; i < 100; ++i)
    CHECK(to_vector<double>(parts[static_cast<size_t>(i)].grad()) == std::vector<double>{2.0 * i});
}

TEST_CASE("gradients of weights of 16 bits are summed in f32 and not rounded to 16") {
  for (DType half : {DType::bf16, DType::f16}) {
    // 300 rows of 1 + 1/64, which both hold exactly: their sum is held by f32 only.
    Tensor x = cast(full({300, 2}, 1 + 1.0 / 64), half), weight = cast(full({3, 2}, 0.5), half).set_requires_grad(true);
    Tensor bias = cast(full({3}, 0.5), half).set_requires_grad(true);
    Tensor table = cast(full({4, 2}, 1.0), half).set_requires_grad(true);
    Tensor y = linear(x, weight, bias);
    y.backward(cast(full({300, 3}, 1.0), half));
    CHECK(weight.grad().dtype() == DType::f32);
    CHECK(to_vector<float>(weight.grad()) == std::vector<float>(6, 300 + 300.0F / 64));
    CHECK(to_vector<float>(bias.grad()) == std::vector<float>(3, 300));
    embedding(full({301}, 2, {.dtype = DType::i64}), table).backward(cast(full({301, 2}, 1.0), half));
    CHECK(to_vector<float>(table.grad()) == std::vector<float>{0, 0, 0, 0, 301, 301, 0, 0});
  }
}

TEST_CASE("a backward that may write over what only the tape held leaves everyone else's tensors alone") {
  auto gradient = [](bool retain, bool held) {
    Tensor x = leaf({-1, 0.5, 2, 3}, {2, 2});
    Tensor y = x * 2.0, z = tanh(y), kept = held ? z.detach() : Tensor();
    Tensor logits = z * 3.0, target = tensor<int64_t>({1, 0}, {2}), of_logits = held ? logits.detach() : Tensor();
    Tensor loss = cross_entropy(transpose(logits, 0, 1), target);
    if (!held) y = z = logits = {};
    std::vector<double> before = held ? to_vector<double>(of_logits) : std::vector<double>{};
    loss.backward({.retain_graph = retain});
    if (retain) {
      std::vector<double> once = to_vector<double>(x.grad());
      x.zero_grad();
      loss.backward();
      CHECK(to_vector<double>(x.grad()) == once);
    }
    if (held) {
      CHECK(to_vector<double>(of_logits) == before);
      CHECK(to_vector<double>(kept * 3.0) == before);
      CHECK(to_vector<double>(y) == std::vector<double>{-2, 1, 4, 6});
    }
    return to_vector<double>(x.grad());
  };
  std::vector<double> expected = gradient(true, true);
  for (bool retain : {false, true})
    for (bool held : {false, true}) CHECK(gradient(retain, held) == expected);
}
